import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { DataDirInUseError, lockDataDir } from '../../src/laptop/data-lock.ts'
import { startProcess } from '../platform/support/processes.ts'

const holderScript = path.join(import.meta.dirname, 'support/lock-holder.ts')

async function folder(): Promise<string> {
  const made = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-lock-'))
  onTestFinished(() => fs.rm(made, { recursive: true, force: true }))
  return made
}

it('refuses a second lock on the same folder, also by another path, and names the folder', async () => {
  const dir = await folder()
  const unlock = await lockDataDir(dir)
  onTestFinished(unlock)
  await fs.symlink(dir, `${dir}-link`)
  onTestFinished(() => fs.rm(`${dir}-link`))
  for (const name of [dir, `${dir}/`, `${dir}-link`]) {
    const refused = lockDataDir(name)
    await expect(refused).rejects.toBeInstanceOf(DataDirInUseError)
    await expect(refused).rejects.toThrow(`${name} is in use by a running mediadock`)
  }
})

it('locks each folder separately, and creates a missing one', async () => {
  const dir = await folder()
  for (const name of ['a', 'b/c']) onTestFinished(await lockDataDir(path.join(dir, name)))
  expect((await fs.stat(path.join(dir, 'b/c'))).isDirectory()).toBe(true)
})

it('is free again once it is released', async () => {
  const dir = await folder()
  for (let turn = 0; turn < 3; turn += 1) await (await lockDataDir(dir))()
  await expect((await lockDataDir(dir))()).resolves.toBeUndefined()
})

it('is given to one of many concurrent callers', async () => {
  const dir = await folder()
  const attempts = await Promise.allSettled(Array.from({ length: 20 }, () => lockDataDir(dir)))
  const given = attempts.filter((one) => one.status === 'fulfilled')
  for (const { value } of given) onTestFinished(value)
  expect(given).toHaveLength(1)
  for (const one of attempts) if (one.status === 'rejected') expect(one.reason).toBeInstanceOf(DataDirInUseError)
})

it('is held against another process, and free after kill -9 of the holder', async () => {
  const dir = await folder()
  const holder = startProcess(process.execPath, [holderScript, dir])
  await holder.says(/locked/)
  await expect(lockDataDir(dir)).rejects.toBeInstanceOf(DataDirInUseError)
  holder.kill('SIGKILL')
  await holder.exit
  await expect((await lockDataDir(dir))()).resolves.toBeUndefined()
})

it('is held by a process that is stopped, as Ctrl-Z does', async () => {
  const dir = await folder()
  const holder = startProcess(process.execPath, [holderScript, dir])
  await holder.says(/locked/)
  holder.kill('SIGSTOP')
  await expect(lockDataDir(dir)).rejects.toBeInstanceOf(DataDirInUseError)
})
