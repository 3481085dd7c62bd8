import { execFile, execFileSync } from 'node:child_process'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  archivedMedia,
  failedCopy,
  mediaStand,
  pngOf,
  retryNow,
  temporaryFolder,
} from '../receiver/archive/media-stand.ts'
import { preferredServer } from '../support/database.ts'
import { withReceiver } from '../support/with-receiver.ts'

const run = promisify(execFile)

/** Mounting a small disk needs a privileged user. */
function canMount(): boolean {
  try {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'mediadock-disk-'))
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', folder], { stdio: 'ignore' })
    execFileSync('umount', [folder])
    fs.rmdirSync(folder)
    return true
  } catch {
    return false
  }
}

const isPrivileged = canMount()

describe.skipIf(!isPrivileged)(
  `an archive whose disk is full${isPrivileged ? '' : ' (skipped: mounting a small one takes root)'}`,
  () => {
    it('is written when there is room again, without giving anything up', async () => {
      const folder = await temporaryFolder()
      onTestFinished(folder.remove)
      await run('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', folder.root])
      onTestFinished(async () => void (await run('umount', [folder.root])))
      const settings = { mediaArchive: { kind: 'file', root: path.resolve(folder.root) } as const }
      const its = await withReceiver({ server: preferredServer, stand: true, settings })
      onTestFinished(its.stop)
      const stand = mediaStand(its)
      const large = pngOf(8, 0, 'x'.repeat(150_000))
      const requestId = await stand.land([stand.serve('large.png', large)])
      const copy = await failedCopy(its.database, requestId, 'store', 0)
      expect(copy).toMatchObject({ state: 'waiting', tries: 0 })
      expect(copy.trouble).toContain('ENOSPC')
      await run('mount', ['-o', 'remount,size=4m', folder.root])
      await retryNow(its.database, requestId)
      expect(await archivedMedia(its.database, requestId)).toMatchObject([
        { bytes: String(large.length), archive_error: null },
      ])
    })
  },
)
