import type { FilesPlace } from '../../platform/settings.ts'
import type { ErrorEnvelope } from '../../wire/schemas.ts'
import type { RefusalCause, Secret, Verification } from '../../wire/signature.ts'
import type { Environment } from './environment.ts'
import type { Parsed, RunningStatus, Report } from './report.ts'

/*
 * provider  a service that generates media, behind an HTTP API. (The program `provider` is one.)
 * kind      how such an API works: SourceKind. sources/kinds.ts lists the kinds.
 * source    one API of the settings: a name, a kind, a URL and keys. The default source is that of GENERATION_KEYS and
 *           `POST /webhooks`; SOURCES_FILE adds others. A request belongs to one source, and never changes it.
 * key       an API key of one source with its signing secret: keys.ts. Only its keys may poll the requests of a source.
 */

/** Returns every value that was sent of a header; `name` is in lower case. */
export type HeaderValues = (name: string) => readonly string[]

/** A webhook as it was sent. */
export type Webhook = { header: HeaderValues; body: Buffer }

/** The headers of a webhook, and its body once it was read. */
export type WebhookHead = { header: HeaderValues; body?: Buffer | undefined }

/**
 * A secret of a source, with the account that its webhooks must name. `signingSecret` is a public key where the source
 * signs with a private one, and empty where it does not sign.
 */
export type SourceSecret = Secret & { account?: string | undefined }

/** The id under which a source sends and repeats a delivery. An unusable id is `stated`, for the log. */
export type Identity = { ok: true; webhookId: string } | { ok: false; stated: string | undefined; message: string }

export type SourceVerification =
  | (Extract<Verification, { ok: true }> & { timestampMismatch?: boolean })
  | { ok: false; cause: RefusalCause | 'missing_header'; timestampSeconds: number | undefined }

/** Yields between two parts of the work, so that a large body does not hold up others. */
export type Steps<Result> = Generator<undefined, Result, undefined>

/** Runs the steps to their end. */
export function atOnce<Result>(steps: Steps<Result>): Result {
  for (;;) {
    const step = steps.next()
    if (step.done === true) return step.value
  }
}

/** One call to a source. Follows no redirect. Throws where there is no whole answer in time. */
export type Call = (request: {
  url: string
  method?: 'GET' | 'POST' | 'PUT'
  headers: Record<string, string>
  body?: string
}) => Promise<ApiAnswer>

/** A result of 100 items with signed links takes a tenth of this. A larger answer is not read. */
export const maxAnswerBytes = 4 * 1024 * 1024

/** `body` is undefined where the answer is larger than `maxAnswerBytes`. */
export type ApiAnswer = { status: number; body: string | undefined; retryAfterSeconds: number | undefined }

/** The API of a source, with the credential of one key. `archive`: see Source. */
export type Api = { url: string; apiKey: string; call: Call; archive?: FilesPlace | undefined }

/** A job to ask its source for. Some sources are asked by model. */
export type Job = { jobId: string; model: string | undefined }

/** Every outcome of fetching a result. */
export type FetchOutcome = { kind: 'result'; report: Report } | { kind: 'running'; status: RunningStatus } | NoResult

/** The outcomes of a call that brings no state of the job. `isUnsent`: the source cannot be called for this job. */
export type NoResult =
  | { kind: 'not_found' }
  | { kind: 'unauthorized' }
  | { kind: 'rate_limited'; retryAfterSeconds: number | undefined }
  | { kind: 'unreachable'; detail: string }
  | { kind: 'invalid'; detail: string; isUnsent?: boolean }

/** Every outcome of asking for a cancellation. After `asked` the job may still complete; `ended`: it has ended. */
export type CancelOutcome = { kind: 'asked' | 'ended' } | NoResult

export type Submission = { model: string; input: unknown; webhookUrl: string; idempotencyKey: string }

/**
 * Every outcome of one submit. After `refused` and `unauthorized` the source has not taken it. `in_progress` means that
 * the source processes the same Idempotency-Key, perhaps of an earlier attempt. After `unreachable` the source may have
 * taken it, unless `isUnsent` is set.
 */
export type SubmitOutcome =
  | { kind: 'submitted'; jobId: string; cost: number | undefined }
  | { kind: 'refused' | 'unauthorized'; status: number; envelope: ErrorEnvelope }
  | { kind: 'in_progress' }
  | { kind: 'rate_limited'; retryAfterSeconds: number | undefined }
  | { kind: 'unreachable'; detail: string; isUnsent?: boolean }

/**
 * A kind of generation API, as functions without state and facts from its documentation (docs/sources.md). The core
 * uses an API by these alone. `identify`, `verify` and `parse` are pure. The others make calls only by `api.call`.
 */
export type SourceKind = {
  /** The id of a delivery. Without a body, it may have no id yet. */
  identify: (webhook: WebhookHead) => Identity
  /** Verifies the bytes as they were sent, before anything of them is read. The clock is in whole Unix seconds. */
  verify: (webhook: Webhook, secrets: readonly SourceSecret[], nowSeconds: number) => Steps<SourceVerification>
  /** The report in the JSON of an authentic body, or a hint: the job to poll. `archive`: see Source. */
  parse: (json: unknown, archive?: FilesPlace) => Parsed
  fetchResult: (job: Job, api: Api) => Promise<FetchOutcome>
  submit: (submission: Submission, api: Api) => Promise<SubmitOutcome>
  /** Left out if the API has no call for it, or if that call also deletes results. */
  cancel?: (job: Job, api: Api) => Promise<CancelOutcome>
  /** Headers that carry the signature: they are stored only where a delivery is to be verified again. */
  signatureHeaders: readonly string[]
  /** Returns the environment of a key, where the key shows it. Left out where every key is `live`. */
  environmentOf?: (apiKey: string | undefined) => Environment | undefined
  /** False where anyone can send a webhook: `parse` then returns hints only. */
  signed: boolean
  /** True where the API's documents promise that a submit repeated with its Idempotency-Key is charged once. */
  idempotentSubmit?: true
  /** The signing secrets of its settings. Left out where they have none. */
  secrets?: SecretForm
  /** The public keys that verify webhooks. They serve all customers, so a webhook must name the account. */
  keySet?: { url: string; keysIn: (json: unknown) => readonly string[] | undefined }
  /** The base URL of the API. Left out where each source has its own. */
  apiUrl?: string
  /** The headers that links to the origin of the API need. Left out where no link needs the key. */
  linkHeaders?: (apiKey: string) => Record<string, string>
  /** How long links in a result last, from the end of the job. Without a promise, it is left out. */
  linkLifeSeconds?: number
}

/** `keyBytes`: the key in a secret, for HMAC or Ed25519; undefined for a secret that is not of the form. */
export type SecretForm = { mustBe: string; keyBytes: (secret: string) => Buffer | undefined }

/**
 * A generation API of the settings. `apiUrl` is undefined for the default source, whose API is at GENERATION_API_URL,
 * and for a source that cannot be called, whose keys then have no `apiKey`.
 */
export type Source = {
  name: string
  kind: SourceKind
  secrets: readonly SourceSecret[]
  apiUrl?: string | undefined
  /** The URL of its public keys, and the account that its webhooks must name. */
  keySetUrl?: string | undefined
  account?: string | undefined
  /** Where media are kept that its results contain as base64: MEDIA_ARCHIVE. */
  archive?: FilesPlace | undefined
}

/** The name of the source of `POST /webhooks`. No other source may have it. */
export const defaultSourceName = 'generation-queue'

/** Returns the name of a source as columns store it: null for the default source, so that it takes no space. */
export function storedName({ name }: Pick<Source, 'name'>): string | null {
  return name === defaultSourceName ? null : name
}

/** Returns the label of a stored name in metrics. The default source has none, so that its series stay as they were. */
export function sourceLabel(stored: string | null): { source_name?: string } {
  return stored === null ? {} : { source_name: stored }
}
