import { openAsBlob } from 'node:fs'
import { setTimeout as delay } from 'node:timers/promises'
import { z } from 'zod'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import type { Output } from '../../wire/schemas.ts'
import type { EngineChoice, RemoteJob } from '../domain/engine-choice.ts'
import type { HttpEngineSettings } from './engine-settings.ts'
import { type Engine, EngineError, type EngineJob, isDiscarded, type Report } from './engine.ts'
import {
  base64Overhead,
  type BoundedAnswer,
  boundedFetch,
  type RemoteOutput,
  remoteOutputSchema,
  storeRemoteMedia,
  unusable,
} from './remote-media.ts'

/** Limit of one upload or download. `timeout_seconds` limits the whole job. */
const transferTimeoutMs = 300_000
/** An answer about a job, besides its outputs: room for a long log. */
const jobAnswerBytes = 262_144

const acceptedSchema = z.object({ url: z.string().min(1) })

const lookSchema = z.object({
  status: z.enum(['queued', 'running', 'done', 'failed']),
  progress: z.number().min(0).max(100).default(0),
  logs: z.array(z.string()).default([]),
  outputs: z.array(remoteOutputSchema).max(100).default([]),
  error: z.string().optional(),
})

type Run = {
  settings: HttpEngineSettings
  type: EngineChoice['type']
  job: EngineJob
  report: Report
  signal: AbortSignal
}

/**
 * Runs jobs on a team's own engine, by the protocol of docs/engines.md. A job has the request's id there, and its URL
 * is stored with the request. A worker that takes the request over continues with the same job. An engine that lost the
 * job gets it once more, but never a third time.
 */
export function createHttpEngine(settings: HttpEngineSettings, type: EngineChoice['type']): Engine {
  return async (job, report, signal) => {
    const deadline = AbortSignal.timeout(settings.timeout_seconds * 1000)
    const remote: RemoteJob = { ...(job.remoteJob ?? { url: null, isRepeat: false }) }
    try {
      return await follow({ settings, type, job, report, signal: AbortSignal.any([signal, deadline]) }, remote)
    } catch (cause) {
      const isLate = deadline.aborted && !signal.aborted
      const late = `the engine did not finish within ${settings.timeout_seconds} s`
      const error = isLate ? new EngineError(late, { cause }) : cause
      // After a transient error or a stop of this process, a worker continues the same job.
      const isOver = signal.aborted ? isDiscarded(signal.reason) : error instanceof EngineError && !error.transient
      if (isOver && remote.url !== null) await cancel(settings, remote.url)
      throw error
    }
  }
}

/**
 * Follows a job from its start, or from where another worker left it, to its outputs. Updates `remote` when the job is
 * started or lost.
 */
async function follow(run: Run, remote: RemoteJob): Promise<Output> {
  const { settings, job, report, signal } = run
  // Another worker has already reported the earlier lines.
  let shown = remote.url === null ? 0 : undefined
  for (;;) {
    const url = (remote.url ??= await start(run, remote))
    const look = await lookAt(run, url)
    if (look === 'lost') {
      if (remote.isRepeat) throw failure('it lost the job twice')
      Object.assign(remote, { url: null, isRepeat: true })
      await job.keepRemoteJob?.(remote)
      continue
    }
    for (const line of look.logs.slice(shown ?? look.logs.length)) await report(look.progress, line)
    shown = Math.max(shown ?? 0, look.logs.length)
    await report(look.progress)
    if (look.status === 'done') return await takeOutputs(run, url, look.outputs)
    if (look.status === 'failed') throw failure(`it gave this reason: ${look.error ?? 'none'}`)
    await delay(settings.poll_seconds * 1000 * (0.75 + Math.random() / 2), undefined, { signal })
  }
}

/**
 * Submits the job to the engine and stores its URL. The engine starts one job per request_id, however often this
 * is repeated.
 */
async function start(run: Run, remote: RemoteJob): Promise<string> {
  const { job, settings } = run
  const init = async () => ({ method: 'POST', body: await formOf(job, run.type) })
  const limits = { timeoutMs: transferTimeoutMs, maxBytes: jobAnswerBytes }
  const { status, body } = await call(run, settings.url, { init, ...limits })
  if (status === 400 || status === 422)
    throw new EngineError('the engine refused this input', { cause: reasonOf({ status, body }) })
  if (status !== 202) throw unusable(reasonOf({ status, body }))
  const url = URL.parse(read(acceptedSchema, body).url, `${settings.url}/`)
  // Each poll sends the token to this URL.
  if (url?.origin !== new URL(settings.url).origin) throw unusable('it named a job that is not on its own host')
  await job.keepRemoteJob?.({ ...remote, url: url.href })
  return url.href
}

async function formOf(
  { requestId, model, input, references }: EngineJob,
  type: EngineChoice['type'],
): Promise<FormData> {
  const form = new FormData()
  const described = references.map(({ field, position, contentType }, at) => ({
    part: `reference-${at}`,
    field,
    position,
    content_type: contentType,
  }))
  form.append('job', JSON.stringify({ request_id: requestId, model, type, input, references: described }))
  for (const [at, { path, contentType }] of references.entries()) {
    form.append(`reference-${at}`, await openAsBlob(path, { type: contentType }), `reference-${at}`)
  }
  return form
}

async function lookAt(run: Run, url: string): Promise<z.infer<typeof lookSchema> | 'lost'> {
  const maxBytes = Math.ceil(run.settings.max_output_bytes * base64Overhead) + jobAnswerBytes
  // Most answers about a job are small, so a slow one means that the engine hangs.
  const { status, body } = await call(run, url, { timeoutMs: 30_000, maxBytes })
  if (status === 404 || status === 410) return 'lost'
  if (status !== 200) throw unusable(reasonOf({ status, body }))
  return read(lookSchema, body)
}

async function takeOutputs(run: Run, jobUrl: string, outputs: readonly RemoteOutput[]): Promise<Output> {
  let left = run.settings.max_output_bytes
  return storeRemoteMedia(run.type, run.job, outputs, async (output) => {
    const bytes = await bytesOf(run, jobUrl, output, left)
    left -= bytes.byteLength
    if (left < 0) throw unusable(`it made more than ${run.settings.max_output_bytes} bytes`)
    return bytes
  })
}

async function bytesOf(run: Run, jobUrl: string, { url, base64 }: RemoteOutput, maxBytes: number): Promise<Buffer> {
  if (base64 !== undefined) return Buffer.from(base64, 'base64')
  const link = url === undefined ? null : URL.parse(url, jobUrl)
  if (link === null) throw unusable('it gave neither an output nor a link to one')
  const isOwn = link.origin === new URL(run.settings.url).origin
  if (!isOwn && link.protocol !== 'https:') throw unusable('it gave a link that is neither https nor on its own host')
  const { status, body } = await call(run, link.href, { timeoutMs: transferTimeoutMs, maxBytes, isOwn })
  if (status !== 200) throw unusable(reasonOf({ status, body }))
  return body
}

type Call = { init?: () => Promise<RequestInit>; timeoutMs: number; maxBytes: number; isOwn?: boolean }

/** Makes one call. Repeats it up to five times, with jittered pauses, if the engine is busy, failing or unreachable. */
async function call(
  { settings, signal }: Pick<Run, 'settings' | 'signal'>,
  url: string,
  options: Call,
): Promise<BoundedAnswer> {
  const { init, timeoutMs, maxBytes, isOwn = true } = options
  const pauses = { baseMs: settings.poll_seconds * 1000, capMs: 10_000 }
  for (let attempt = 1; ; attempt += 1) {
    let lastFailure: unknown
    try {
      const answer = await boundedFetch({
        url,
        init: { ...(await init?.()), headers: isOwn ? authorization(settings) : {} },
        signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]),
        maxBytes,
      })
      if (answer.status !== 429 && answer.status < 500) return answer
      lastFailure = reasonOf(answer)
    } catch (error) {
      signal.throwIfAborted()
      if (error instanceof EngineError && !error.transient) throw unusable(error)
      lastFailure = error
    }
    if (attempt === 6)
      throw new EngineError('the engine is busy or cannot be reached', { cause: lastFailure, transient: true })
    await delay(jitteredPauseMs(attempt, pauses, Math.random), undefined, { signal })
  }
}

/** Cancels on a best-effort basis. An unreachable engine finishes the job in vain. */
async function cancel(settings: HttpEngineSettings, url: string): Promise<void> {
  const init = { method: 'DELETE', headers: authorization(settings) }
  // Short, because the answer is not needed.
  const signal = AbortSignal.timeout(5000)
  await boundedFetch({ url, init, signal, maxBytes: jobAnswerBytes }).catch(() => {})
}

function authorization({ api_key: token }: HttpEngineSettings): Record<string, string> {
  return token === undefined ? {} : { authorization: `Bearer ${token}` }
}

function read<T>(schema: z.ZodType<T>, body: Buffer): T {
  try {
    return schema.parse(JSON.parse(body.toString('utf8')))
  } catch (cause) {
    throw unusable(cause instanceof Error ? cause : new Error(String(cause)))
  }
}

/** The engine's own words are only logged, because they may reveal internals. */
function failure(reason: string): EngineError {
  return new EngineError('the engine failed', { cause: new Error(reason) })
}

function reasonOf({ status, body }: BoundedAnswer): Error {
  return new Error(`it answered ${status}: ${body.toString('utf8', 0, 1000)}`)
}
