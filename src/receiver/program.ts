import type { Express, Router } from 'express'
import { createApp } from '../platform/http/app.ts'
import { listen, type Listener } from '../platform/http/http.ts'
import { watchReadiness, withHealth } from '../platform/http/readiness.ts'
import { prepareSchema } from '../platform/postgres/await-postgres.ts'
import type { RunningProgram } from '../platform/program.ts'
import { openParts, openPublicApp, startSlices, type Parts, type PartsOptions } from './assembly.ts'
import { startBackground, type Background, type BackgroundOptions } from './background.ts'
import { migrations } from './domain/migrations.ts'
import { openTraces } from './traces/traces.ts'

/*
 * The most frequent words of this program (all: docs/contributing/words.md):
 *
 *   source      an API whose webhooks come here: the default one, and those of SOURCES_FILE. Columns `source` mean
 *               something else: webhook or reconciler (requests), an address (quarantine, known_senders)
 *   inbox       the table of the deliveries to land
 *   report      the end of a request, as a delivery or the result of a poll carries it
 *   hint        a webhook that names a job without its end
 *   land        to write a report into its request
 *   landed      of a request: it has an end. Of a landing or a poll: it changed the request for readers
 *   confirmed   the provider's own result has shown that end. Until then, only a webhook has reported it
 *   park        to keep a delivery without landing it, until it is replayed, or put back into the inbox
 *   extra poll  a poll outside the schedule of the request: the column `doubt_poll_at`. It takes a trial call, and a key
 *               has only a tenth of its calls for those
 *
 * A delivery that arrives once, as the first for its request, passes through these files in this order. platform/ and
 * wire/ are folders of src, the others of src/receiver:
 *
 *   platform/http/http.ts               listens; connections.ts and framing.ts refuse what is too much or not HTTP
 *   intake/webhook.ts                   the steps of a webhook, up to its answer
 *   sources/generation-queue/source.ts  finds the id in the headers
 *   intake/body-reader.ts               reads the bytes, within one budget for all bodies
 *   sources/generation-queue/source.ts  verifies the signature (wire/signature.ts); to-report.ts parses the body
 *   domain/delivery.ts                  makes the delivery, with an id that is the same whenever it comes again
 *   intake/accept.ts                    gathers deliveries into a batch to store
 *   landing/hand-over.ts                reserves room for each: in-flight.ts keeps it with its report (report-to-land.ts)
 *   intake/store.ts                     stores the batch and its places in the inbox, in one statement
 *   landing/hand-over.ts                makes the stored deliveries ready to land
 *   intake/webhook-answers.ts           answers
 *   intake/arrival-log.ts               counts and logs the arrival
 *   landing/batches.ts                  writes the batches that in-flight.ts chooses
 *   landing/land-batch.ts               lands a batch, and reports each outcome
 *   landing/land-reports.ts             lands reports: judge.ts reads the rows of their requests, and rules.ts
 *                                       judges them. ordinary-sql.ts and parts-sql.ts then write them
 *   feeding/sequencer.ts                gives the change its position in the feed
 *   reconciling/poller.ts               makes polls that are due: due.ts, poll-claims.ts, then polling.ts
 *   fetching/fetcher.ts                 asks with the keys of keys-to-try.ts, within the budget of each: source-call.ts,
 *                                       call-budget.ts
 *   domain/poll-endings.ts              lists how the poll may end, and when the next one follows
 *   subscriptions/role.ts               posts each change that has a position to the URLs of subscriptions: turn.ts
 *
 * Other ways:
 *
 *   refused for its id or signature     intake/quarantine.ts; on-call/verify-quarantine.ts verifies it again
 *   repeated at the same moment, or
 *   signed in another environment too   intake/store.ts runs a second statement
 *   over 64 KiB, or without room here   landing/claiming.ts: any process claims it from the inbox (inbox.ts)
 *   of a source that does not sign      intake/webhook.ts stores nothing: reconciling/unsigned-hints.ts makes a poll due
 *   signed with a private key           intake/key-sets.ts has fetched the public keys of its source
 *   not readable                        intake/store.ts parks it at once; landing/claiming.ts, after a replay of many
 *   not simply a report                 landing/claiming.ts: ends a submit, or is a hint (hint.ts)
 *   not the first for its request, or
 *   a result of the provider            landing/refine-rulings.ts reads what else its ruling needs, effects.ts lists what it
 *                                       changes, and general-sql.ts writes that
 *   refused by Postgres                 landing/land-in-parts.ts halves the batch, puts off, parks after five tries
 *   locked, changed at every try, or
 *   behind 4 others of its request      landing/returning.ts returns it to the inbox, to land later
 *   replayed by the API or a command    landing/replay.ts lands it at once; on-call/replays.ts for many
 *   replayed in the console             on-call/replays.ts puts it back into the inbox, one or many: landing/requeue.ts
 *   no webhook ends the request         reconciling/reconciler.ts makes the first poll, poller.ts the next ones
 *
 * When something fails, these decide:
 *
 *   a process dies               another process claims its deliveries and polls after their leases: claimDeliveries()
 *                                of landing/inbox.ts, claimDue() of reconciling/poll-claims.ts
 *   a lock on a request          unlockedParts() of landing/land-in-parts.ts, returnOrFail() of landing/claiming.ts,
 *                                landWithRetries() of reconciling/polling.ts
 *   Postgres fails or hangs      landOrReturn() of landing/batches.ts; flush() of intake/accept.ts answers 503, or the
 *                                timer of accept() there
 *   the provider fails           createSourceBreaker() of fetching/source-breaker.ts. Once it is back: noteRecovered() of
 *                                fetching/key-health.ts, isHeldUp of reconciling/due.ts
 *   the clock of a host is off   verificationOf() of wire/signature.ts uses this clock for the age of a signature;
 *                                leases, due times and budgets go by Postgres's clock: postgresTime() of
 *                                platform/postgres/time.ts
 *   a flood for one request      takeBatch() of landing/in-flight.ts
 *
 * assembly.ts makes the parts that several others use. background.ts makes the background roles and runs them.
 */

/** Everything that the internal listener's pages and API may use. */
export type ReceiverDeps = Pick<
  Parts['shared'],
  'settings' | 'db' | 'keys' | 'clock' | 'time' | 'logger' | 'metrics' | 'registry' | 'wake'
> &
  Pick<Parts['calls'], 'submitter' | 'sourceReads' | 'cancel'> &
  Pick<Parts['landing'], 'landingDeps'> &
  Pick<Parts['polls'], 'awaited'> &
  Pick<Parts, 'slices'> & {
    background: Background
    startedAt: Date
    isReady: () => boolean
    signal: AbortSignal
  }

export type ReceiverOptions = PartsOptions &
  BackgroundOptions & {
    /** The pages and API of the internal listener. */
    internal: (deps: ReceiverDeps) => Router
    /** Aborts when the start is cancelled: waiting for Postgres ends, and everything that was started can be stopped. */
    abandoned?: AbortSignal
  }

/**
 * Starts the receiver. Both listeners start at once. The background roles start when Postgres is reachable and the
 * schema is up to date. Until then the receiver is alive and not ready.
 */
export async function startReceiver(options: ReceiverOptions): Promise<RunningProgram> {
  const { settings, logger } = options
  const traces = await openTraces(settings, logger)
  const parts = openParts(options, traces)
  const { shared, calls, landing, polls, slices } = parts
  const { retired, stopping, cut, notePrepared } = shared.lifetime
  const background = startBackground(parts, await startSlices(parts), options)
  const ready = await watchReadiness({ url: settings.databaseUrl, ...migrations, logger, signal: retired.signal })
  const publicApp = openPublicApp(parts)
  const deps: ReceiverDeps = {
    ...shared,
    ...calls,
    ...landing,
    ...polls,
    slices,
    background,
    startedAt: shared.clock(),
    isReady: ready.isReady,
    signal: stopping.signal,
  }
  // Callers of the internal listener use other proxies than senders, or none.
  const { internalTrustProxy: trustProxy } = settings
  const internalApp = createApp({ logger, trustProxy, mount: (app) => app.use(options.internal(deps)) })

  const listeners: Listener[] = []
  const stop = async (graceMs: number) => {
    const graceEnds = performance.now() + graceMs
    retired.abort()
    stopping.abort()
    const cutTimer = setTimeout(() => cut.abort(), graceMs)
    await Promise.all(listeners.map((listener) => listener.close(graceMs)))
    await background.drain(Math.max(0, graceEnds - performance.now()))
    clearTimeout(cutTimer)
    await Promise.all([shared.pools.close(), ready.stop(), traces?.close(graceEnds - performance.now())])
  }
  try {
    await listenOn(listeners, shared, { publicApp, internalApp, isReady: ready.isReady })
    if (await prepareReceiver(options, stopping.signal)) notePrepared()
    await ready.lookNow()
  } catch (error) {
    await stop(0)
    throw error
  }
  const [outside, inside] = listeners.map(({ url }) => url)
  return { urls: { webhooks: `${outside}/webhooks`, console: `${inside}/` }, retire: () => retired.abort(), stop }
}

type Apps = { publicApp: Express; internalApp: Express; isReady: () => boolean }

/** Opens both listeners. Each is added to `listeners` as soon as it listens, so that a later failure can close it. */
async function listenOn(
  listeners: Listener[],
  { settings, logger, metrics, lifetime }: Parts['shared'],
  { publicApp, internalApp, isReady }: Apps,
): Promise<void> {
  const onClosed = (reason: string) => metrics.connectionsClosed.inc({ reason })
  const both = { keepAliveSeconds: settings.keepAliveSeconds, retired: lifetime.retired.signal, logger, onClosed }
  const outer = { host: settings.host, port: settings.port, setting: 'PORT', ...both }
  const inner = { host: settings.internalHost, port: settings.internalPort, setting: 'INTERNAL_PORT', ...both }
  listeners.push(await listen({ ...outer, handler: withHealth(publicApp, isReady), continues: true, halfOpen: true }))
  listeners.push(await listen({ ...inner, handler: withHealth(internalApp, isReady) }))
}

/** Waits for Postgres and the schema. Returns false if the start was cancelled. */
function prepareReceiver({ settings, logger, abandoned }: ReceiverOptions, stopping: AbortSignal): Promise<boolean> {
  const { databaseUrl: url, migrateOnStart, production } = settings
  const atStart = { url, ...migrations, program: 'receiver', migrateOnStart, production, logger }
  return prepareSchema(atStart, abandoned ?? stopping)
}
