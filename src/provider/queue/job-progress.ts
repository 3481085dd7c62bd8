import type { Logger } from '../../platform/logger.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { EngineStop, type Report } from '../engines/engine.ts'
import { type ClaimedRequest, isCanceled, recordProgress } from './requests.ts'

export type JobProgressDeps = { db: Database; time: SharedTime; logger: Logger; leaseSeconds: number }

/** Writes the progress of a running request, renews its lease, and notices the loss of the lease. */
export function createJobProgress({ db, time, logger, leaseSeconds }: JobProgressDeps, claimed: ClaimedRequest) {
  const lost = new AbortController()
  let progress = 0
  let logLines: string[] = []
  let writtenAt = 0
  let writing: Promise<void> | undefined

  const write = async () => {
    const lines = logLines
    logLines = []
    writtenAt = performance.now()
    const ours = await recordProgress(db, claimed, { progress, logLines: lines, leaseSeconds, now: time() })
    // Stops a canceled generation on a remote engine too. A generation that was taken over continues there.
    if (!ours)
      lost.abort(new EngineStop('the request is no longer ours', { discard: await isCanceled(db, claimed.id) }))
  }
  const writeOnce = (): Promise<void> => {
    writing ??= write().finally(() => (writing = undefined))
    return writing
  }
  const heartbeat = setInterval(() => {
    writeOnce().catch((error: unknown) =>
      logger.warn({ err: error, request_id: claimed.id }, 'lease not renewed, will try again'),
    )
  }, leaseSeconds * 250)

  const report: Report = async (percent, line) => {
    progress = Math.min(Math.max(Math.trunc(percent), progress), 100)
    if (line !== undefined) logLines.push(line.replaceAll('\0', '').toWellFormed().slice(0, 500))
    // Limits writes of engines that report more often. With twice this pause, `progress` would visibly jump.
    if (performance.now() - writtenAt >= 250) await writeOnce()
  }
  /** Writes the remaining log lines and stops the heartbeat. */
  const close = async () => {
    clearInterval(heartbeat)
    await writing
    if (logLines.length > 0 && !lost.signal.aborted) await writeOnce()
  }
  return { report, close, lost: lost.signal }
}
