import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from '../../platform/logger.ts'
import { isAboutTheData } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import type { Output } from '../../wire/schemas.ts'
import type { RemoteJob } from '../domain/engine-choice.ts'
import { badEndingOf } from '../domain/faults.ts'
import type { EngineHost } from '../engines/engine-host.ts'
import { EngineError, EngineStop, type Report } from '../engines/engine.ts'
import { sandboxOutput } from '../engines/sandbox.ts'
import type { References } from '../references/references.ts'
import type { Ending } from '../webhooks/notification.ts'
import {
  type ClaimedRequest,
  finishRequest,
  giveRequestBack,
  isCanceled,
  putRequestOff,
  recordProgress,
  recordRemoteJob,
} from './requests.ts'

const retryPause = { baseMs: 2000, capMs: 30_000 }

export type JobDeps = {
  db: Database
  engines: Pick<EngineHost, 'run'>
  references: Pick<References, 'withFiles'>
  mediaDir: string
  mediaUrl: string
  time: SharedTime
  random: () => number
  logger: Logger
  leaseSeconds: number
}

/** Runs one claimed request to its end, postpones it, or gives it back. `cut` aborts when the process must stop. */
export async function runJob(deps: JobDeps, claimed: ClaimedRequest, cut: AbortSignal): Promise<void> {
  const progress = createJobProgress(deps, claimed)
  const signal = AbortSignal.any([cut, progress.lost, AbortSignal.timeout(15 * 60_000 + waitMsOf(claimed))])
  try {
    const ending = await endingOf(deps, claimed, progress.report, signal)
    await progress.close().catch((error: unknown) => {
      // The end matters more than the last log line.
      deps.logger.warn({ err: error, request_id: claimed.id }, 'the last progress of a generation was not written')
    })
    if (ending.kind !== 'retry') return await finish(deps, claimed, ending)
    await putRequestOff(deps.db, claimed, ending.pauseMs / 1000, deps.time())
    deps.logger.info({ request_id: claimed.id, retry_after_ms: ending.pauseMs }, 'generation will be retried')
  } catch (error) {
    await progress.close().catch(() => {})
    if (progress.lost.aborted) return deps.logger.info({ request_id: claimed.id }, 'generation canceled or taken over')
    if (!cut.aborted) throw error
    await giveRequestBack(deps.db, claimed, deps.time())
  }
}

type Outcome = Ending | { kind: 'retry'; pauseMs: number }

async function endingOf(deps: JobDeps, claimed: ClaimedRequest, report: Report, signal: AbortSignal): Promise<Outcome> {
  // Gives up after 20 runs without an end, most of which died with their worker. Engines crash in a separate process,
  // so the request is rarely the cause, but it must end.
  if (claimed.attempts > 20) return lastResort
  try {
    if (claimed.environment === 'sandbox') return await rehearse(deps, claimed, report, signal)
    return { kind: 'completed', output: await generate(deps, claimed, report, signal) }
  } catch (error) {
    if (signal.aborted) {
      if (signal.reason instanceof Error && signal.reason.name === 'TimeoutError')
        return failed('the generation took too long')
      throw error
    }
    const facts = { err: error, request_id: claimed.id, model: claimed.model, attempt: claimed.attempts }
    if (error instanceof EngineError) deps.logger.warn(facts, 'the engine failed')
    else deps.logger.error(facts, 'the engine failed unexpectedly')
    const isForGood = error instanceof EngineError && !error.transient
    // From the third run on, an internal error or a busy service also ends the request as FAILED.
    if (isForGood || claimed.attempts >= 3) return error instanceof EngineError ? failed(error.message) : lastResort
    return { kind: 'retry', pauseMs: jitteredPauseMs(claimed.attempts, retryPause, deps.random) }
  }
}

async function generate(deps: JobDeps, claimed: ClaimedRequest, report: Report, signal: AbortSignal): Promise<Output> {
  const { id: requestId, model, input, engine, remote_job: remoteJob } = claimed
  const { engines, references, mediaDir, mediaUrl } = deps
  const keepRemoteJob = async (job: RemoteJob) => {
    if (!(await recordRemoteJob(deps.db, claimed, job))) throw new Error('the request is no longer ours')
  }
  const job = { requestId, model, input, mediaDir, mediaUrl, remoteJob, keepRemoteJob }
  return references.withFiles(claimed, signal, (files) =>
    engines.run(engine, { ...job, references: files }, report, signal),
  )
}

/** How long a fault delays the request. The deadline is extended by this time. */
function waitMsOf({ faults }: Pick<ClaimedRequest, 'faults'>): number {
  return (faults?.slow_seconds ?? 0) * 1000
}

/** Runs a sandbox request whose key has faults: slow, or with a bad end. */
async function rehearse(deps: JobDeps, claimed: ClaimedRequest, report: Report, signal: AbortSignal): Promise<Ending> {
  const { mediaDir, mediaUrl, random } = deps
  const { engine, input, faults } = claimed
  await report(0, 'rehearsing in the sandbox')
  const stepMs = waitMsOf({ faults }) / 10
  for (let step = 1; step <= 10 && stepMs > 0; step += 1) {
    await delay(stepMs, undefined, { signal })
    await report(step * 10)
  }
  const bad = badEndingOf(faults, random)
  if (bad === 'failed') return failed('the generation failed because of a fault set for this sandbox key')
  if (bad === 'canceled') return { kind: 'canceled' }
  return { kind: 'completed', output: await sandboxOutput(engine, { mediaDir, mediaUrl, input }) }
}

/** The spec's only code of a failed generation (Events, Body on failure). */
function failed(message: string): Ending {
  return { kind: 'failed', error: { code: 'GENERATION_FAILED', message } }
}

/** The end after internal errors, lost workers, or an end that Postgres refused. */
const lastResort = failed('the generation could not be completed')

/**
 * Ends the request. Retries during a short outage of Postgres, because the media exist already. An end that Postgres
 * refuses would be refused after every run, so the request ends without its webhook. If Postgres refuses that too, the
 * request is FAILED and refunded.
 */
async function finish(deps: JobDeps, claimed: ClaimedRequest, ending: Ending, hasWebhook = true): Promise<void> {
  const { db, time, random, logger } = deps
  const facts = { request_id: claimed.id, model: claimed.model, ending: ending.kind, webhook: hasWebhook }
  for (let attempt = 1; ; attempt += 1) {
    try {
      const ours = await finishRequest(db, claimed, ending, { now: time(), random, hasWebhook })
      return logger.info({ ...facts, ours }, 'generation ended')
    } catch (error) {
      if (isAboutTheData(error)) {
        if (!hasWebhook && ending === lastResort) throw error
        const next = hasWebhook ? 'storing it without its webhook' : 'the request ends as FAILED'
        logger.error({ ...facts, err: error }, `Postgres refused to store the end of a generation: ${next}`)
        return hasWebhook ? finish(deps, claimed, ending, false) : finish(deps, claimed, lastResort)
      }
      if (attempt === 5) throw error
      await delay(jitteredPauseMs(attempt, { baseMs: 200, capMs: 5000 }, random))
    }
  }
}

/** Writes the progress of a running request, renews its lease, and notices the loss of the lease. */
function createJobProgress({ db, time, logger, leaseSeconds }: JobDeps, claimed: ClaimedRequest) {
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
