import { once } from 'node:events'
import fs from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import postgres from 'postgres'
import { onTestFinished } from 'vitest'
import { startEmbeddedPostgres } from '../../src/laptop/embedded-postgres.ts'
import { createLogger } from '../../src/platform/logger.ts'

export type OwnPostgres = {
  /** The same through every stop and start. */
  url: string
  /** SIGSTOP to the postmaster and to all of its children: connections stay open and nothing answers. */
  freeze: () => Promise<void>
  thaw: () => void
  stop: () => Promise<void>
  start: () => Promise<void>
}

/** A server for one test, to be frozen and stopped. */
export async function withOwnPostgres(): Promise<OwnPostgres> {
  const dataDir = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-chaos-'))
  const boot = () => startEmbeddedPostgres({ dataDir, logger: createLogger('silent') })
  let server = await boot()
  const relay = await startRelay(Number(new URL(server.url).port))
  let frozen: number[] = []
  const thaw = () => {
    for (const pid of frozen) process.kill(pid, 'SIGCONT')
    frozen = []
  }
  onTestFinished(async () => {
    thaw()
    await relay.stop()
    await server.stop()
    await fs.rm(dataDir, { recursive: true, force: true })
  })
  const url = new URL(server.url)
  url.port = String(relay.port)
  return {
    url: url.href,
    freeze: async () => {
      const [postmaster] = (await fs.readFile(path.join(dataDir, 'postgres/postmaster.pid'), 'utf8')).split('\n')
      const admin = postgres(server.url, { max: 1, onnotice: () => {} })
      await admin`select 1`
      // The postmaster first: then it forks no more, and the list of its children is whole.
      frozen.push(Number(postmaster))
      process.kill(Number(postmaster), 'SIGSTOP')
      const children = await admin<{ pid: number }[]>`select pid from pg_stat_activity where pid <> pg_backend_pid()`
      for (const { pid } of children) {
        frozen.push(pid)
        process.kill(pid, 'SIGSTOP')
      }
      await admin.end()
    },
    thaw,
    stop: async () => {
      await server.stop()
      await relay.stop()
    },
    start: async () => {
      server = await boot()
      await relay.start(Number(new URL(server.url).port))
    },
  }
}

/** One address for a server that comes back on another port, as the name of a managed Postgres is; refuses while it is stopped. */
async function startRelay(firstTarget: number) {
  let target = firstTarget
  const open = new Set<net.Socket>()
  const server = net.createServer((client) => {
    const upstream = net.connect(target, '127.0.0.1')
    for (const socket of [client, upstream]) {
      open.add(socket)
      socket
        .on('error', () => {})
        .on('close', () => {
          open.delete(socket)
          client.destroy()
          upstream.destroy()
        })
    }
    client.pipe(upstream).pipe(client)
  })
  const listen = async (port: number) => {
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
  }
  await listen(0)
  const address = server.address()
  if (address === null || typeof address === 'string') throw new Error('the relay has no port')
  return {
    port: address.port,
    start: async (port: number) => {
      target = port
      await listen(address.port)
    },
    stop: async () => {
      if (!server.listening) return
      server.close()
      for (const socket of open) socket.destroy()
      await once(server, 'close')
    },
  }
}
