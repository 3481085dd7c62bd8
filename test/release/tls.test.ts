import { once } from 'node:events'
import net from 'node:net'
import tls from 'node:tls'
import { expect, it, onTestFinished } from 'vitest'
import { createPool } from '../../src/platform/postgres/postgres.ts'
import { makeAuthority } from '../support/certificates.ts'
import { withTestDatabase } from '../support/database.ts'
import { describeOnPackaged } from '../support/own-packaged-postgres.ts'
import { withTlsPostgres } from '../support/tls-postgres.ts'

const encrypted = 'select ssl from pg_stat_ssl where pid = pg_backend_pid()'

async function ask(url: string, text = encrypted): Promise<unknown> {
  const pool = createPool({ url, max: 1 })
  try {
    return [...(await pool.client.unsafe(text))]
  } finally {
    await pool.close()
  }
}

describeOnPackaged('TLS to Postgres', () => {
  it('checks the certificate against the given host name or address, and against the given root', async () => {
    const [server, other] = [await withTlsPostgres(), await makeAuthority()]
    const sslrootcert = server.authority.root
    for (const sslmode of ['prefer', 'require', 'verify-ca', 'verify-full']) {
      for (const host of ['127.0.0.1', 'localhost']) {
        const url = server.urlWith({ sslmode, ...(sslmode.startsWith('verify') && { sslrootcert }) }, host)
        expect(await ask(url), `${sslmode} ${host}`).toEqual([{ ssl: true }])
      }
    }
    for (const sslmode of ['require', 'verify-ca', 'verify-full']) {
      await expect(ask(server.urlWith({ sslmode, sslrootcert: other.root })), sslmode).rejects.toThrow(
        /certificate|signature/,
      )
    }
    await expect(ask(server.urlWith({ sslmode: 'verify-full' }))).rejects.toThrow(/certificate/)
    await expect(ask(server.urlWith({}))).rejects.toMatchObject({ code: '28000' })
  })

  it('refuses a certificate of another name under verify-full, also for an address', async () => {
    const server = await withTlsPostgres({ names: ['DNS:localhost'] })
    const at = (sslmode: string, host: string) =>
      ask(server.urlWith({ sslmode, sslrootcert: server.authority.root }, host))
    expect(await at('verify-full', 'localhost')).toEqual([{ ssl: true }])
    expect(await at('verify-ca', '127.0.0.1')).toEqual([{ ssl: true }])
    await expect(at('verify-full', '127.0.0.1')).rejects.toThrow(/127\.0\.0\.1/)
    const elsewhere = await withTlsPostgres({ names: ['DNS:db.internal'] })
    await expect(
      ask(elsewhere.urlWith({ sslmode: 'verify-full', sslrootcert: elsewhere.authority.root }, 'localhost')),
    ).rejects.toThrow(/localhost/)
  })

  it('reports a server without TLS', async () => {
    const { url } = await withTestDatabase('packaged')
    await expect(ask(`${url}?sslmode=require`)).rejects.toThrow('the server does not speak TLS')
    expect(await ask(`${url}?sslmode=prefer`)).toEqual([{ ssl: false }])
  })
})

it('sends the host name in SNI, and none for an address', async () => {
  const names: (string | false | undefined)[] = []
  // The beginning of the protocol only: the request for TLS, "S", and the greeting.
  const server = net.createServer((socket) => {
    socket
      .on('error', () => {})
      .once('data', () => {
        socket.write('S')
        const secured = new tls.TLSSocket(socket, {
          isServer: true,
          SNICallback: (name, done) => {
            names.push(name)
            done(new Error('that was all'))
          },
        })
        secured.on('error', () => socket.destroy())
      })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const address = server.address()
  const port = address !== null && typeof address !== 'string' ? address.port : 0
  await expect(ask(`postgres://x:y@localhost:${port}/z?sslmode=require`)).rejects.toThrow()
  expect(names).toEqual(['localhost'])
  await expect(ask(`postgres://x:y@127.0.0.1:${port}/z?sslmode=require`)).rejects.toThrow()
  expect(names).toEqual(['localhost'])
})
