import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import postgres from 'postgres'
import { afterAll, describe, expect, it, onTestFinished } from 'vitest'
import { findEmbeddedPostgres, startEmbeddedPostgres } from '../../src/laptop/embedded-postgres.ts'
import { locateBinaries } from '../../src/laptop/postgres-binaries.ts'
import { createLogger } from '../../src/platform/logger.ts'
import { isAlive, processesIn, startProcess } from '../platform/support/processes.ts'
import { eventually } from '../support/eventually.ts'
import { copyInstallation, ordinaryUser } from './support/ordinary-user.ts'

const logger = createLogger('silent')
const holderScript = path.join(import.meta.dirname, 'support/postgres-holder.ts')
const isRoot = process.getuid?.() === 0

async function temporaryFolder(): Promise<string> {
  const made = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-embedded-'))
  onTestFinished(async () => {
    for (const pid of await processesIn(made)) process.kill(pid, 'SIGKILL')
    await fs.rm(made, { recursive: true, force: true, maxRetries: 10 })
  })
  return made
}

/** A data folder below one that only its owner may walk through, as root's home is. */
async function privateFolder(): Promise<string> {
  const home = path.join(await temporaryFolder(), 'home')
  await fs.mkdir(home, { mode: 0o700 })
  const dataDir = path.join(home, '.data')
  await fs.mkdir(dataDir)
  return dataDir
}

let template: Promise<string> | undefined

/** The same, with a cluster in it that was made once and stopped in order. */
async function madeFolder(): Promise<string> {
  template ??= (async () => {
    const made = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-embedded-'))
    const server = await startEmbeddedPostgres({ dataDir: made, logger })
    await server.stop()
    return made
  })()
  const [from, to] = [await template, await privateFolder()]
  await promisify(execFile)('cp', ['-Rp', `${from}/.`, to])
  return to
}
afterAll(async () => template && fs.rm(await template, { recursive: true, force: true, maxRetries: 10 }))

async function start(dataDir: string) {
  const server = await startEmbeddedPostgres({ dataDir, logger })
  onTestFinished(server.stop)
  return server
}

async function query<T>(url: string, work: (sql: postgres.Sql) => Promise<T>): Promise<T> {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  try {
    return await work(sql)
  } finally {
    await sql.end({ timeout: 1 })
  }
}

const serverPid = async (dataDir: string) =>
  Number((await fs.readFile(path.join(dataDir, 'postgres/postmaster.pid'), 'utf8')).split('\n')[0])

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

  it('listens on loopback alone, on no socket of the file system, and lets nobody in without the password', async () => {
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

  it('runs as nobody when root starts it, for PostgreSQL refuses root', async () => {
    const dataDir = await madeFolder()
    await start(dataDir)
    const { uid } = await fs.stat(`/proc/${await serverPid(dataDir)}`)
    const own = process.getuid?.() ?? -1
    expect(uid).toBe(isRoot ? (await fs.stat(path.join(dataDir, 'postgres'))).uid : own)
    if (isRoot) expect(uid).not.toBe(0)
  })

  it('says so when the server ends by itself', async () => {
    const dataDir = await madeFolder()
    const server = await start(dataDir)
    process.kill(await serverPid(dataDir), 'SIGQUIT')
    expect(await server.ended).toMatch(/the embedded PostgreSQL ended/)
    await expect(server.stop()).resolves.toBeUndefined()
  })
})

describe('after a process that was killed', () => {
  it('the server that it left behind is stopped, and the start recovers what was committed', async () => {
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

  it('a server killed with it is recovered too', async () => {
    const dataDir = await madeFolder()
    const first = await start(dataDir)
    await query(first.url, (sql) => sql.unsafe(`create table kept (what text); insert into kept values ('committed')`))
    for (const pid of await processesIn(dataDir)) process.kill(pid, 'SIGKILL')
    await first.ended
    const second = await start(dataDir)
    expect(await query(second.url, (sql) => sql`select what from kept`)).toEqual([{ what: 'committed' }])
  })

  it('a cluster that was half made is made anew, and trusts nobody', async () => {
    const dataDir = await privateFolder()
    for (const moment of ['postgres.new/PG_VERSION', 'postgres.new/postgresql.conf', 'postgres.new/base/5']) {
      const holder = startProcess(process.execPath, [holderScript, dataDir])
      await eventually(() =>
        fs.access(path.join(dataDir, moment)).then(
          () => true,
          () => false,
        ),
      )
      holder.kill('SIGKILL')
      await holder.exit
      // Whether the rename came first does not matter: what is in place is whole.
    }
    const { url } = await start(dataDir)
    expect(await query(url, (sql) => sql`select 1 as one`)).toEqual([{ one: 1 }])
    await expect(query(url.replace(/:[0-9a-f]{48}@/, ':x@'), (sql) => sql`select 1`)).rejects.toMatchObject({
      code: '28P01',
    })
    expect(await fs.readdir(dataDir)).not.toContain('postgres.new')
  })

  it('a server killed in the middle of its start is no obstacle', async () => {
    const dataDir = await madeFolder()
    for (let turn = 0; turn < 3; turn += 1) {
      const holder = startProcess(process.execPath, [holderScript, dataDir])
      await eventually(() =>
        fs.access(path.join(dataDir, 'postgres/postmaster.pid')).then(
          () => true,
          () => false,
        ),
      )
      holder.kill('SIGKILL')
      await holder.exit
    }
    const { url } = await start(dataDir)
    expect(await query(url, (sql) => sql`select 1 as one`)).toEqual([{ one: 1 }])
  })
})

it('a process that exits without stopping its server leaves none behind', async () => {
  const dataDir = await madeFolder()
  const holder = startProcess(process.execPath, [holderScript, dataDir])
  await holder.says(/up as/)
  holder.kill('SIGUSR2')
  expect(await holder.exit).toMatchObject({ code: 3 })
  await eventually(async () => (await processesIn(dataDir)).length === 0)
})

it('a process that exits while the cluster is being made leaves no initdb behind', async () => {
  const dataDir = await privateFolder()
  const holder = startProcess(process.execPath, [
    '--import',
    `data:text/javascript,process.once('SIGUSR2',()=>process.exit(3))`,
    holderScript,
    dataDir,
  ])
  await eventually(() =>
    fs.access(path.join(dataDir, 'postgres.new/PG_VERSION')).then(
      () => true,
      () => false,
    ),
  )
  holder.kill('SIGUSR2')
  expect(await holder.exit).toMatchObject({ code: 3 })
  await eventually(async () => (await processesIn(dataDir)).length === 0)
})

it('runs for an ordinary user, in a folder and from an installation of that user', async () => {
  const home = await temporaryFolder()
  const user = await ordinaryUser()
  const { node, script } = await copyInstallation({ home, user, script: holderScript })
  const dataDir = path.join(home, '.data')
  await fs.mkdir(dataDir)
  await fs.chown(dataDir, user.uid, user.gid)
  const holder = startProcess(node, [script, dataDir], { cwd: home, uid: user.uid, gid: user.gid, env: { HOME: home } })
  const [, uid, url = ''] = await holder.says(/up as (\d+) at (\S+)/)
  expect(Number(uid)).toBe(user.uid)
  expect(await query(url, (sql) => sql`select 1 as one`)).toEqual([{ one: 1 }])
  expect((await fs.stat(`/proc/${await serverPid(dataDir)}`)).uid).toBe(user.uid)
  holder.kill('SIGTERM')
  expect(await holder.exit).toMatchObject({ code: 0 })
  expect(await processesIn(dataDir)).toEqual([])
})

it('root copies the binaries to where any id can run them, whatever the umask', async () => {
  const cache = path.join(await temporaryFolder(), 'cache/mediadock')
  const before = process.umask(0o077)
  onTestFinished(() => void process.umask(before))
  const binaries = await locateBinaries({ forAnyUser: true, cache })
  process.umask(before)
  expect(path.dirname(binaries)).toBe(cache)
  for (const [file, least] of [
    ['.', 0o5],
    ['bin', 0o5],
    ['bin/postgres', 0o5],
    ['bin/initdb', 0o5],
    ['share', 0o5],
    ['lib', 0o5],
  ] as const)
    expect({ file, mode: (await fs.stat(path.join(binaries, file))).mode & least }).toEqual({ file, mode: least })
  expect((await fs.stat(cache)).mode & 0o5).toBe(0o5)
  expect(await locateBinaries({ forAnyUser: true, cache })).toBe(binaries)
})
