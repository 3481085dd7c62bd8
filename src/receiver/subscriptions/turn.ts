import type { Logger } from '../../platform/logger.ts'
import type { Poster } from '../../platform/outward/poster.ts'
import { type Dialling, publicUrlProblem } from '../../platform/outward/public-url.ts'
import { isOutage } from '../../platform/postgres/errors.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { failureWords } from '../../platform/postgres/words.ts'
import type { Pressure } from '../../platform/pressure.ts'
import { version } from '../../platform/release.ts'
import { isLoopback } from '../../platform/settings.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import { sign } from '../../wire/signature.ts'
import { ExpiredPositionError, readFeed, type FeedItem, type FeedPage } from '../queries/feed.ts'
import {
  giveSubscriptionBack,
  putOffSubscription,
  saveProgress,
  stopExpired,
  type LeasedSubscription,
} from './leases.ts'

export type TurnDeps = PostingDeps & {
  db: Database
  logger: Logger
  pressure: Pick<Pressure, 'paced'>
  onPosted: (name: string, outcome: 'accepted' | 'refused' | 'unreachable') => void
  /** After it aborts, no post begins. */
  signal: AbortSignal
  /** Aborting it cuts posts that are under way. */
  cut: AbortSignal
}

const pauses = { baseMs: 1000, capMs: 300_000 }

/** Posts changes to one subscription for a while, and gives it back. An error counts as a failure of it. */
export async function takeTurn(
  deps: TurnDeps,
  leased: LeasedSubscription,
  holds: () => boolean,
): Promise<{ more: boolean }> {
  try {
    return await postOn(deps, leased, holds)
  } catch (error) {
    if (isOutage(error)) throw error
    deps.logger.error({ err: error, subscription: leased.name }, 'posting to a subscription failed')
    // Bounds the text in the row.
    const trouble = `posting failed: ${failureWords(error).slice(0, 500)}`
    await putOff(deps, leased, { trouble, failures: leased.failures })
    return { more: false }
  }
}

async function postOn(deps: TurnDeps, leased: LeasedSubscription, holds: () => boolean): Promise<{ more: boolean }> {
  const { db } = deps
  // After this, another subscription may have the place.
  const until = performance.now() + 10_000
  let at: Progress = leased
  let { failures } = leased
  let isOurs = true
  const mayBegin = () => isOurs && !deps.signal.aborted && holds()
  const save = async (progress: Progress, accepted: boolean) => {
    if (accepted) failures = 0
    // Another replica that has claimed it continues from the position stored before.
    isOurs &&= await saveProgress(db, leased, { ...progress, accepted })
  }
  while (mayBegin() && performance.now() < until) {
    const page = await readOn(deps, leased, at.position)
    if (page === undefined) return { more: false }
    if (page.next_after === at.position) break
    const last = page.data.at(-1)?.position ?? at.position
    const { isSaved, trouble, ...sent } = await sendPage({
      items: page.data,
      from: at,
      probes: failures > 0,
      mayBegin,
      post: async (item) => {
        const end = await postChange(deps, leased, { webhookId: String(item.position), item }, deps.cut)
        if (end.outcome !== 'cut') deps.onPosted(leased.name, end.outcome)
        return end
      },
      save: (progress) => save(progress, true),
    })
    // After a whole page the position moves to its end: the changes after its last item did not match the filter.
    at =
      sent.position < last
        ? sent
        : { position: page.next_after, ahead: sent.ahead.filter((one) => one > page.next_after) }
    if (!isSaved || at.position > sent.position) await save(at, page.data.length > 0)
    if (trouble !== undefined) {
      await putOff(deps, leased, { trouble, failures })
      return { more: false }
    }
    if (at.position < page.next_after || at.position >= page.head) break
  }
  await giveSubscriptionBack(db, leased)
  return { more: mayBegin() && performance.now() >= until }
}

async function readOn(
  { db, logger, pressure, signal }: TurnDeps,
  leased: LeasedSubscription,
  after: number,
): Promise<FeedPage | undefined> {
  const { filter } = leased
  try {
    return await pressure.paced(() => readFeed(db, { after, limit: 100, filter }), signal)
  } catch (error) {
    if (!(error instanceof ExpiredPositionError)) throw error
    const trouble = `the changes after position ${after} were deleted before they were posted (RETENTION_DAYS)`
    if (await stopExpired(db, leased, trouble))
      logger.error({ subscription: leased.name, position: after }, `a subscription stopped: ${trouble}`)
    return undefined
  }
}

async function putOff(
  { db, logger }: TurnDeps,
  leased: LeasedSubscription,
  { trouble, failures }: { trouble: string; failures: number },
): Promise<void> {
  const pauseMs = jitteredPauseMs(failures + 1, pauses, Math.random)
  const state = await putOffSubscription(db, leased, { trouble, pauseSeconds: pauseMs / 1000 })
  const facts = { subscription: leased.name, failures: failures + 1, trouble }
  if (state === 'stopped') logger.error(facts, 'a subscription stopped: it failed for all of its retry_hours')
  else logger.warn({ ...facts, retry_in_ms: pauseMs }, 'a change could not be posted to a subscription, trying again')
}

export type Progress = { position: number; ahead: readonly number[] }

type PageSending = {
  items: readonly FeedItem[]
  from: Progress
  probes: boolean
  mayBegin: () => boolean
  post: (item: FeedItem) => Promise<ChangePostEnd>
  /** Stores the progress, at most twice a second: after a crash, only later changes are posted again. */
  save: (progress: Progress) => Promise<void>
}

type PageSent = Progress & {
  /** True if `save` has stored this progress already. */
  isSaved: boolean
  trouble?: string | undefined
}

/** Posts at a time per subscription, each of another request. */
const sideBySide = 8

/**
 * Posts a page of changes: changes of different requests side by side, those of one request in order. After a failure
 * no further post begins. The position moves over changes that were answered 2xx without a gap. Those beyond a gap are
 * kept in `ahead`, so that they are not posted again.
 */
export async function sendPage({ items, from, probes, mayBegin, post, save }: PageSending): Promise<PageSent> {
  const done = new Set(from.ahead)
  const waiting = items.filter(({ position }) => !done.has(position))
  const busy = new Set<string>()
  let trouble: string | undefined
  let fault: { error: unknown } | undefined
  let savedAt = performance.now()
  let isSaved = true
  let saving = false

  const progress = (): Progress => {
    let { position } = from
    for (const item of items) {
      if (!done.has(item.position)) break
      ;({ position } = item)
    }
    return { position, ahead: [...done].filter((one) => one > position) }
  }
  const saveNowAndThen = async () => {
    if (saving || performance.now() - savedAt < 500) return
    saving = true
    isSaved = true
    await save(progress())
    savedAt = performance.now()
    saving = false
  }
  const sendNext = async (): Promise<boolean> => {
    const at = waiting.findIndex((one) => !busy.has(subjectOf(one)))
    const [item] = at < 0 || trouble !== undefined || fault || !mayBegin() ? [] : waiting.splice(at, 1)
    if (item === undefined) return false
    busy.add(subjectOf(item))
    const end = await post(item)
    if (end.outcome === 'accepted') {
      done.add(item.position)
      isSaved = false
      await saveNowAndThen()
    } else if (end.outcome !== 'cut') trouble ??= end.trouble
    busy.delete(subjectOf(item))
    return end.outcome === 'accepted'
  }
  const sendOn = async () => {
    try {
      while (await sendNext());
    } catch (error) {
      fault ??= { error }
    }
  }

  if (!probes || (await sendNext())) await Promise.all(Array.from({ length: sideBySide }, sendOn))
  if (fault) throw fault.error
  return { ...progress(), isSaved, trouble }
}

/** Returns the id that all changes of one request or submit share. */
function subjectOf(item: FeedItem): string {
  return ('idempotency_key' in item ? item.idempotency_key : null) ?? item.request_id ?? ''
}

type ChangePostEnd =
  | { outcome: 'accepted' }
  | { outcome: 'refused' | 'unreachable'; trouble: string }
  | { outcome: 'cut' }

export type PostingDeps = { poster: Poster; clock: () => Date }

/** Allows https and public addresses; outside of production also this machine. */
export function judgeSubscriptionUrl(url: URL, { production }: { production: boolean }): Dialling {
  if (!production && isLoopback(url.hostname.replace(/^\[|\]$/g, ''))) return { kind: 'named' }
  const why = publicUrlProblem(url)
  return why === undefined ? { kind: 'public' } : { kind: 'refused', why }
}

/** Posts a change once, signed like the provider's webhooks (spec, Events), with the time of this attempt. */
export async function postChange(
  { poster, clock }: PostingDeps,
  { url, secret }: { url: string; secret: string },
  { webhookId, item }: { webhookId: string; item: FeedItem },
  cut: AbortSignal,
): Promise<ChangePostEnd> {
  const body = Buffer.from(JSON.stringify(item))
  const t = Math.floor(clock().getTime() / 1000)
  const headers = {
    'content-type': 'application/json',
    'user-agent': `mediadock/${version}`,
    'x-service-webhook-id': webhookId,
    'x-service-timestamp': String(t),
    'x-service-signature': sign(body, secret, t),
  }
  const { ok, httpStatus, detail } = await poster.post({ url, headers, body }, cut)
  if (ok) return { outcome: 'accepted' }
  if (cut.aborted) return { outcome: 'cut' }
  // The body of the answer is ignored.
  if (httpStatus !== undefined && (httpStatus < 200 || httpStatus > 299))
    return { outcome: 'refused', trouble: `the service answered ${httpStatus}` }
  return { outcome: 'unreachable', trouble: detail }
}
