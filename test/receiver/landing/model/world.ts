import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import express from 'express'
import { Counter } from 'prom-client'
import { createLogger } from '../../../../src/platform/logger.ts'
import { createPool } from '../../../../src/platform/postgres/postgres.ts'
import { timeOf } from '../../../../src/platform/postgres/time.ts'
import type { Delivery } from '../../../../src/receiver/domain/delivery.ts'
import type { Keys } from '../../../../src/receiver/domain/keys.ts'
import { createFetcher } from '../../../../src/receiver/fetching/fetcher.ts'
import { createSourceClient } from '../../../../src/receiver/fetching/source-client.ts'
import { createAcceptor } from '../../../../src/receiver/intake/accept.ts'
import { createQuarantine } from '../../../../src/receiver/intake/quarantine.ts'
import { mountWebhooks } from '../../../../src/receiver/intake/webhook.ts'
import type { PollingDeps } from '../../../../src/receiver/reconciling/polling.ts'
import type { TestDatabase } from '../../../support/database.ts'
import { keysOf } from '../../../support/receiver.ts'
import { testHandOver } from '../../../support/work-once.ts'
import { claiming } from '../../../support/worker.ts'
import type { KeyName } from './provider.ts'

const live = { name: 'live', api_key: 'service_live_live', signing_secret: 'whsec_live_secret' }
const sandbox = { name: 'sandbox', api_key: 'service_test_sandbox', signing_secret: 'whsec_sandbox_secret' }
/** A key that the receiver learns of late: until then its webhooks are refused and go to the quarantine. */
const late = { name: 'late', api_key: 'service_live_late', signing_secret: 'whsec_late_secret' }

export const secrets: Record<KeyName | 'forger', string> = {
  live: live.signing_secret,
  sandbox: sandbox.signing_secret,
  late: late.signing_secret,
  forger: 'whsec_forged',
}
export const environments: Record<KeyName, 'live' | 'sandbox'> = { live: 'live', sandbox: 'sandbox', late: 'live' }

/** So small that a handful of deliveries spends it. */
export const callsPerMinute = 2
export const stuckAfterSeconds = 120

/** The parts that a sequence can replace: the keys, the clock and the provider. */
export type Setting = { keys: Keys; now: () => Date; providerFetch: typeof globalThis.fetch; handsOver: boolean }

/** Another source, with the bodies of the default source. Its key comes and goes with no other. */
export const engineSecret = 'whsec_engine_secret'
function withEngine(keys: Keys): Keys {
  const source = { ...keys.defaultSource, name: 'engine', secrets: [{ name: 'engine', signingSecret: engineSecret }] }
  const key = { name: 'engine', source, apiKey: 'service_live_engine', signingSecret: engineSecret, retired: false }
  const all = [...keys.all, { ...key, environment: 'live' as const }]
  return { ...keys, all, byName: new Map(all.map((one) => [one.name, one])), sources: new Map([['engine', source]]) }
}

export const fewKeys = withEngine(keysOf(live, sandbox))
export const allKeys = withEngine(keysOf(live, sandbox, late))

/** The keys without one of them; the last one stays. */
export function keysWithout({ all }: Keys, name: string): Keys {
  const left = [live, sandbox, late].filter((key) => key.name !== name && all.some((known) => known.name === key.name))
  return withEngine(left.length === 0 ? keysOf(live) : keysOf(...left))
}

/** The receiver's parts on a real database and a real socket, driven by hand instead of by loops. */
export async function createWorld(database: TestDatabase) {
  const pool = createPool({ url: database.url, max: 8, keepsPlans: true })
  const { db } = pool
  const logger = createLogger('silent')
  const counter = () =>
    new Counter({ name: 'unread', help: 'unread', labelNames: ['operation', 'outcome'], registers: [] })
  let setting: Setting = { keys: fewKeys, now: () => new Date(), providerFetch: globalThis.fetch, handsOver: false }

  const keys = () => setting.keys
  const clock = () => setting.now()
  const client = createSourceClient({
    baseUrl: 'http://provider.test',
    fetch: (url, init) => setting.providerFetch(url, init),
    clock,
  })
  const freshFetcher = () =>
    createFetcher({
      db,
      client,
      keys,
      fetchRatePerMinute: callsPerMinute,
      clock,
      time: timeOf(clock),
      logger,
      calls: counter(),
    })
  const quarantine = createQuarantine({
    db,
    clock,
    dropped: counter(),
    maxRows: 1000,
    maxBytes: 1_000_000,
    wake: () => {},
    signal: AbortSignal.timeout(600_000),
  })
  const receiver: PollingDeps = {
    db,
    keys,
    fetchResult: freshFetcher(),
    mediaHosts: undefined,
    stuckAfterSeconds,
    clock,
    time: timeOf(clock),
    ...claiming({ clock, logger }),
    logger,
    cut: new AbortController().signal,
    onProcessed: () => {},
  }

  const landing = testHandOver(receiver)
  const handOver = {
    ...landing,
    reserve: (delivery: Delivery) => (setting.handsOver ? landing.reserve(delivery) : undefined),
  }
  const acceptor = createAcceptor({ db, time: receiver.time, logger, handOver, onStored: () => {} })

  const app = express()
  mountWebhooks(app, {
    keys,
    acceptor,
    maxBodyBytes: 65_536,
    clock,
    arrivalLog: { record: () => false },
    quarantine,
    traces: undefined,
    logger: Object.assign(Object.create(logger), {
      error: ({ err }: { err: unknown }) => {
        throw err
      },
    }),
    onUnsigned: () => {},
    onUnknownKey: () => {},
  })
  const server = http.createServer(app).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const agent = new http.Agent({ keepAlive: true })

  /** Answers the outcome of a delivery: `accepted`, `duplicate`, `parked`, or the code of the refusal. */
  const post = async (body: Buffer, headers: Record<string, string>, path = '/webhooks'): Promise<string> => {
    const req = http.request({
      port,
      host: '127.0.0.1',
      path,
      method: 'POST',
      agent,
      headers: { ...headers, 'content-length': body.length },
    })
    req.end(body)
    const [res] = (await once(req, 'response')) as [http.IncomingMessage]
    const answer = JSON.parse(Buffer.concat(await res.toArray()).toString())
    await landing.idle()
    return answer.status ?? answer.error.code
  }

  const notices: { request_id: string; status: string; media_complete: boolean }[] = []
  let flushed = 0
  const listening = await database.sql.listen('mediadock_results', (payload) => {
    const notice = JSON.parse(payload)
    if (typeof notice.flushed === 'number') flushed = notice.flushed
    else notices.push(notice)
  })

  return {
    sql: database.sql,
    receiver,
    quarantine,
    post,
    notices,
    flushed: () => flushed,
    use: (next: Partial<Setting>) => {
      setting = { ...setting, ...next }
    },
    /** A process that remembers nothing of the provider, as after a start. */
    restart: () => {
      receiver.fetchResult = freshFetcher()
    },
    close: async () => {
      await listening.unlisten()
      agent.destroy()
      server.close()
      await once(server, 'close')
      await pool.close()
    },
  }
}

export type World = Awaited<ReturnType<typeof createWorld>>
