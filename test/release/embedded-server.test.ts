import fs from 'node:fs/promises'
import path from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { findEmbeddedPostgres } from '../../src/laptop/embedded-postgres.ts'
import {
  holderScript,
  madeFolder,
  privateFolder,
  query,
  removeTemplate,
  serverPid,
  start,
} from '../laptop/support/embedded.ts'
import { isAlive, processesIn, startProcess } from '../platform/support/processes.ts'
import { eventually } from '../support/eventually.ts'

const isRoot = process.getuid?.() === 0
afterAll(removeTemplate)

describe('the embedded PostgreSQL', () => {
  it('starts below a folder of mode 700, keeps the data over a restart and leaves no process', async () => {
    const dataDir = await privateFolder()
    const first = await start(dataDir)
    expect((await fs.stat(path.dirname(dataDir))).mode & 0o777).toBe(0o700)
    expect((await fs.stat(path.join(dataDir, 'postgres-password'))).mode & 0o777).toBe(0o600)
    await query(first.url, (sql) => sql.unsafe(`create table kept (what text); insert into kept values ('before')`))
    expect(await findEmbeddedPostgres(dataDir)).toBe(first.url)
    expect((await processesIn(dataDir)).length).toBeGreaterThan(3)
    await first.stop()
    expect(await processesIn(dataDir)).toEqual([])
    expect(await findEmbeddedPostgres(dataDir)).toBeUndefined()

    const second = await start(dataDir)
    expect(await query(second.url, (sql) => sql`select what from kept`)).toEqual([{ what: 'before' }])
    await second.stop()
    await second.stop()
    expect(await processesIn(dataDir)).toEqual([])
  })

  it('listens only on loopback, without a Unix socket, and requires the password', async () => {
    const dataDir = await madeFolder()
    const { url } = await start(dataDir)
    const [settings] = await query(
      url,
      (sql) =>
        sql`select current_setting('listen_addresses') as listen, current_setting('unix_socket_directories') as sockets`,
    )
    expect(settings).toEqual({ listen: '127.0.0.1', sockets: '' })
    for (const wrong of ['x', '']) {
      const stranger = url.replace(/:[0-9a-f]{48}@/, wrong === '' ? '@' : `:${wrong}@`)
      expect(stranger).not.toBe(url)
      await expect(query(stranger, (sql) => sql`select 1`)).rejects.toMatchObject({
        code: expect.stringMatching(/^28P01$|SASL/),
      })
    }
  })

  it('runs as the user nobody when root starts it', async () => {
    const dataDir = await madeFolder()
    await start(dataDir)
    const { uid } = await fs.stat(`/proc/${await serverPid(dataDir)}`)
    const own = process.getuid?.() ?? -1
    expect(uid).toBe(isRoot ? (await fs.stat(path.join(dataDir, 'postgres'))).uid : own)
    if (isRoot) expect(uid).not.toBe(0)
  })

  it('reports an unexpected end of the server', async () => {
    const dataDir = await madeFolder()
    const server = await start(dataDir)
    process.kill(await serverPid(dataDir), 'SIGQUIT')
    expect(await server.ended).toMatch(/the embedded PostgreSQL ended/)
    await expect(server.stop()).resolves.toBeUndefined()
  })
})

describe('after a process that was killed', () => {
  it('the next start stops its server and recovers all commits', async () => {
    const dataDir = await madeFolder()
    const holder = startProcess(process.execPath, [holderScript, dataDir])
    const [, url = ''] = await holder.says(/up as \d+ at (\S+)/)
    await query(url, (sql) => sql.unsafe(`create table kept (what text); insert into kept values ('committed')`))
    const left = await serverPid(dataDir)
    holder.kill('SIGKILL')
    await holder.exit
    expect(isAlive(left)).toBe(true)

    const server = await start(dataDir)
    expect(await serverPid(dataDir)).not.toBe(left)
    await eventually(() => !isAlive(left))
    expect(await query(server.url, (sql) => sql`select what from kept`)).toEqual([{ what: 'committed' }])
  })

  it('the next start also recovers a server killed with it', async () => {
    const dataDir = await madeFolder()
    const first = await start(dataDir)
    await query(first.url, (sql) => sql.unsafe(`create table kept (what text); insert into kept values ('committed')`))
    for (const pid of await processesIn(dataDir)) process.kill(pid, 'SIGKILL')
    await first.ended
    const second = await start(dataDir)
    expect(await query(second.url, (sql) => sql`select what from kept`)).toEqual([{ what: 'committed' }])
  })
})

it('a process that exits without stopping its server leaves no server behind', async () => {
  const dataDir = await madeFolder()
  const holder = startProcess(process.execPath, [holderScript, dataDir])
  await holder.says(/up as/)
  holder.kill('SIGUSR2')
  expect(await holder.exit).toMatchObject({ code: 3 })
  await eventually(async () => (await processesIn(dataDir)).length === 0)
})
