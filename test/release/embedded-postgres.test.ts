import fs from 'node:fs/promises'
import path from 'node:path'
import { afterAll, expect, it, onTestFinished } from 'vitest'
import { locateBinaries } from '../../src/laptop/postgres-binaries.ts'
import {
  holderScript,
  madeFolder,
  privateFolder,
  query,
  removeTemplate,
  serverPid,
  start,
  temporaryFolder,
} from '../laptop/support/embedded.ts'
import { copyInstallation, ordinaryUser } from '../laptop/support/ordinary-user.ts'
import { processesIn, startProcess } from '../platform/support/processes.ts'
import { eventually } from '../support/eventually.ts'

afterAll(removeTemplate)

it('a partly created cluster is created again, and requires the password', async () => {
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
    // The cluster in place is complete, before or after the rename.
  }
  const { url } = await start(dataDir)
  expect(await query(url, (sql) => sql`select 1 as one`)).toEqual([{ one: 1 }])
  await expect(query(url.replace(/:[0-9a-f]{48}@/, ':x@'), (sql) => sql`select 1`)).rejects.toMatchObject({
    code: '28P01',
  })
  expect(await fs.readdir(dataDir)).not.toContain('postgres.new')
})

it('a server killed during its start does not prevent the next start', async () => {
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

it("runs for an ordinary user, in that user's folder and installation", async () => {
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

it('root copies the binaries to a place where any user can run them, with any umask', async () => {
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
