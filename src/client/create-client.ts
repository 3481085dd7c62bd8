import { apiCalls, type ApiCall, type OverHttp } from './api-call.ts'
import type { ResultMedia, ResultRow } from './change.ts'
import { errorOf, GenerationError } from './generation-error.ts'

export type ClientOptions = OverHttp & {
  /** The name of the key that submits. Default: the first usable key of the default source. */
  keyName?: string | undefined
}

export type SubmitOptions<Metadata> = {
  keyName?: string | undefined
  /** Returned in `results` and in the feed. */
  metadata?: Metadata | undefined
  /** A UUID v4 to keep with your order. The same key never charges twice, even after a restart. Default: a new one. */
  idempotencyKey?: string | undefined
  signal?: AbortSignal | undefined
}

export type GenerateOptions<Metadata> = SubmitOptions<Metadata> & {
  /** Limit of the whole wait. Default: until the signal aborts. */
  timeoutMs?: number | undefined
  /** Called at first, and when the status, the queue position or the progress (0 to 100) has changed. */
  onProgress?: (progress: Progress) => void
}

export type Progress = { status: ResultRow['status']; progress: number | null; queuePosition: number | null }

/** The output in the shape of the provider's result endpoint. */
export type Output =
  | { images: { url: string; width?: number; height?: number; original_url?: string }[] }
  | { video: { url: string; width?: number; height?: number; duration?: number } }
  | { audio: { url: string; duration?: number } }

export type Result<Metadata = unknown> = Omit<ResultRow, 'output' | 'metadata'> & {
  output: Output | null
  metadata: Metadata
}

export type Generation<Metadata = unknown> = {
  idempotency_key: string
  state: 'pending' | 'submitted' | 'refused' | 'expired'
  request_id: string | null
  cost: number | null
  last_error: string | null
  answer: unknown
  result: Result<Metadata> | null
  media: ResultMedia[]
}

export type Generated<Metadata = unknown> = { idempotencyKey: string; result: Result<Metadata>; media: ResultMedia[] }

type Asking = { keyName?: string; signal?: AbortSignal }
type Waiting<Metadata> = Pick<GenerateOptions<Metadata>, 'signal' | 'onProgress'>
type Input = Record<string, unknown>

/** Repeats calls while mediadock is unreachable, until their signal aborts. A refusal rejects with GenerationError. */
export type Client = {
  /** Submits, waits, and resolves with the complete result. Survives restarts: the same idempotencyKey charges once. */
  generate: <M = unknown>(model: string, input: Input, options?: GenerateOptions<M>) => Promise<Generated<M>>
  submit: <M = unknown>(model: string, input: Input, options?: SubmitOptions<M>) => Promise<Generation<M>>
  /** Waits for the complete result of a submit. Rejects if the request ends without one. */
  wait: <M = unknown>(idempotencyKey: string, options?: Waiting<M>) => Promise<Generated<M>>
  /** Returns the row of `results`. Waits up to `waitSeconds` (at most 60) for the request to end. */
  result: <M = unknown>(
    requestId: string,
    options?: { waitSeconds?: number; signal?: AbortSignal },
  ) => Promise<Result<M>>
  /**
   * Asks the source of a request to cancel its job, which may still complete. `ended`: the job had ended. Rejects with
   * the code `not_cancelable` if the source cancels no jobs, or the request has landed.
   */
  cancel: (
    requestId: string,
    options?: { signal?: AbortSignal },
  ) => Promise<{ outcome: 'asked' | 'ended'; request: Pick<ResultRow, 'status'> }>
  /** Returns the price of a generation in credits. */
  estimate: (model: string, input: Input, options?: Asking) => Promise<{ credits: number }>
  /** Returns the models that the key may use. */
  models: (options?: Asking) => Promise<{ data: ModelEntry[] }>
  /** Returns the balance and the usage of the key's account. */
  account: (options?: Asking) => Promise<Account>
}

export type ModelEntry = {
  slug: string
  type: 'image' | 'video' | 'audio'
  name: string
  capabilities: string[]
  pricing: { credits: number; note?: string }
}

export type Account = {
  account_id: string
  balance: { credits: number }
  usage_30d: { requests: number; credits_spent: number }
}

/** Creates a client of the internal listener. It has no dependencies. */
export function createClient({ keyName: usualKey, ...api }: ClientOptions): Client {
  const call = apiCalls(api)
  const query = (keyName = usualKey) => (keyName === undefined ? '' : `?key_name=${encodeURIComponent(keyName)}`)
  const submit: Client['submit'] = (model, input, options = {}) => {
    const { keyName = usualKey, metadata, idempotencyKey = crypto.randomUUID(), signal } = options
    const body = { model, input, metadata, key_name: keyName, idempotency_key: idempotencyKey }
    return call('generations', { method: 'POST', body, signal })
  }
  return {
    submit,
    wait: (idempotencyKey, options = {}) => untilComplete(call, idempotencyKey, options),
    generate: (model, input, options = {}) => generate({ call, submit }, { model, input, options }),
    result: (requestId, { waitSeconds: seconds = 0, signal } = {}) =>
      call(`results/${encodeURIComponent(requestId)}?wait=${seconds}`, { signal }),
    cancel: (requestId, { signal } = {}) =>
      call(`requests/${encodeURIComponent(requestId)}/cancel`, { method: 'POST', signal }),
    estimate: (model, input, { keyName, signal } = {}) => {
      const path = `models/${encodeURIComponent(model)}/estimate${query(keyName)}`
      return call(path, { method: 'POST', body: { input }, signal })
    },
    models: ({ keyName, signal } = {}) => call(`models${query(keyName)}`, { signal }),
    account: ({ keyName, signal } = {}) => call(`account${query(keyName)}`, { signal }),
  }
}

async function untilComplete<M>(
  call: ApiCall,
  idempotencyKey: string,
  { signal, onProgress }: Waiting<M>,
): Promise<Generated<M>> {
  // With `onProgress`, each call soon returns the current state.
  const path = `generations/${encodeURIComponent(idempotencyKey)}?wait=${onProgress ? 2 : 30}`
  let last = ''
  for (;;) {
    const generation = await call<Generation<M>>(path, { signal })
    const { state, result, media } = generation
    if (state === 'refused' || state === 'expired') throw refusalOf(generation)
    if (result === null) continue
    const seen = { status: result.status, progress: result.progress, queuePosition: result.queue_position }
    if (JSON.stringify(seen) !== last) onProgress?.(seen)
    last = JSON.stringify(seen)
    if (result.status === 'COMPLETED' && result.media_complete) return { idempotencyKey, result, media }
    if (result.landed_at !== null && result.status !== 'COMPLETED') throw failureOf(result, idempotencyKey)
  }
}

type Generating<M> = { model: string; input: Input; options: GenerateOptions<M> }

async function generate<M>(
  { call, submit }: { call: ApiCall; submit: Client['submit'] },
  { model, input, options: { timeoutMs, onProgress, signal: given, ...options } }: Generating<M>,
): Promise<Generated<M>> {
  const { idempotencyKey = crypto.randomUUID() } = options
  const deadline = timeoutMs === undefined ? undefined : AbortSignal.timeout(timeoutMs)
  const signal = AbortSignal.any([given, deadline].flatMap((one) => one ?? []))
  try {
    await submit(model, input, { ...options, idempotencyKey, signal })
    return await untilComplete<M>(call, idempotencyKey, { signal, ...(onProgress && { onProgress }) })
  } catch (error) {
    const more = { idempotencyKey, cause: error }
    if (error instanceof GenerationError) throw new GenerationError(error.code, error.message, more)
    if (given?.aborted === true) throw new GenerationError('aborted', 'the caller stopped waiting', more)
    if (deadline?.aborted === true) throw new GenerationError('timeout', `no result within ${timeoutMs} ms`, more)
    throw error
  }
}

function failureOf({ status, error_code, error_message }: Result, idempotencyKey: string): GenerationError {
  const why = error_message ?? 'the provider gave no message'
  return new GenerationError('generation_failed', `${status}: ${why} (${error_code ?? 'no code'})`, { idempotencyKey })
}

function refusalOf({ idempotency_key: idempotencyKey, state, answer, last_error }: Generation): GenerationError {
  if (state === 'expired')
    return new GenerationError('submit_expired', last_error ?? 'no final answer came', { idempotencyKey })
  const { code, message } = errorOf(answer, 0)
  return new GenerationError(code, message, { idempotencyKey })
}
