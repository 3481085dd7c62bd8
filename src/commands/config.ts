import { migrationsOf } from '../config/migrations.ts'
import { isUpToDate } from '../platform/postgres/migrate.ts'
import type { Database } from '../platform/postgres/postgres.ts'
import { postgresTime } from '../platform/postgres/time.ts'
import type { GenerationKey } from '../receiver/domain/keys.ts'
import { takeCall } from '../receiver/fetching/call-budget.ts'
import { callDeadlineMs, describeFailure, readBounded } from '../receiver/fetching/source-client.ts'
import { countUntracked } from '../receiver/queries/trouble.ts'
import type { ReceiverSettings } from '../receiver/settings.ts'
import { withReceiver } from './processing.ts'
import { printTable } from './terminal.ts'
import { defineCommand, printable, UsageError } from './usage.ts'

export const command = defineCommand({
  help: `
mediadock config check

Reads the receiver's settings as a start would, connects to the database, and requests the
account of each key of the default source that is not retired, at one call per key. Prints what follows from
each result. Exits with 78 if a setting is invalid, with 1 if a service or a key cannot be used.
`,
  options: {},
  takesWords: true,
  run: async (_options, words, env) => {
    if (words.join(' ') !== 'check') throw new UsageError('config takes one word: check')
    return withReceiver(env, async ({ db, settings }) => {
      const hasSchema = await isUpToDate({ url: settings.databaseUrl, ...migrationsOf.receiver })
      // Without the schema there is no call budget, so the keys are not checked.
      const keys = hasSchema ? await Promise.all(settings.keys.all.map((key) => keyLine(db, settings, key))) : []
      const tracking = hasSchema ? await trackingLines(db) : []
      const lines = [settingsLine(settings), schemaLine(settings, hasSchema), ...keys, ...tracking]
      printTable(
        ['what', 'state', 'effect'],
        lines.map(({ cells }) => cells.map(printable)),
      )
      return lines.every(({ ok }) => ok) ? 0 : 1
    })
  },
})

type Line = { cells: [what: string, is: string, soThat: string]; ok: boolean }

const good = (...cells: Line['cells']): Line => ({ cells, ok: true })
const bad = (...cells: Line['cells']): Line => ({ cells, ok: false })

function settingsLine({ host, port, internalHost, internalPort, production }: ReceiverSettings): Line {
  const soThat = `listens for webhooks on ${host}:${port}, console and API on ${internalHost}:${internalPort}`
  return good('settings', production ? 'valid for production' : 'valid for a laptop', soThat)
}

function schemaLine({ migrateOnStart }: ReceiverSettings, hasSchema: boolean): Line {
  if (hasSchema) return good('database', 'connected, schema is up to date', 'a start does not change it')
  const is = 'connected, schema is not up to date'
  if (migrateOnStart) return good('database', is, 'a start migrates it. The keys were not checked')
  const action = 'run mediadock migrate receiver, or set MIGRATE_ON_START=true'
  return bad('database', is, `a start waits for the migration: ${action}. The keys were not checked`)
}

/** Warns that polling cannot find untracked requests. Returns no line if all recent requests were tracked. */
async function trackingLines(db: Database): Promise<Line[]> {
  const { untracked, requests } = await countUntracked(db)
  if (untracked === 0) return []
  const is = `${untracked} of the latest ${requests} requests were not tracked before their webhook arrived`
  const soThat =
    'polling finds only tracked requests: an untracked result is lost if its webhook is lost. ' +
    'Submit with POST /api/generations, or track each with POST /api/requests'
  return [good('tracking', is, soThat)]
}

/** Checks one key with a read-only call (spec, Endpoints: account), within the call budget that all replicas share. */
async function keyLine(db: Database, settings: ReceiverSettings, key: GenerationKey): Promise<Line> {
  const what = `key ${key.name} (${key.environment ?? 'environment unknown'})`
  if (key.retired || key.apiKey === undefined)
    return good(what, key.retired ? 'retired' : 'without api_key', 'its secret verifies webhooks; it makes no calls')
  if (key.source.name !== settings.keys.defaultSource.name)
    return good(what, 'not checked', 'only keys of the default source are checked')
  const { fetchRatePerMinute: limitPerMinute, generationApiUrl } = settings
  const call = { keyName: key.name, limitPerMinute, purpose: 'completing', now: postgresTime() } as const
  const grant = await takeCall(db, call)
  if (!grant.ok) {
    const soThat = `its next call is possible in ${Math.ceil(grant.retryAfterSeconds)} s`
    return good(what, `not checked: ${grant.reason}`, soThat)
  }
  try {
    const response = await fetch(`${generationApiUrl}/v1/account`, {
      headers: { authorization: `Bearer ${key.apiKey}`, accept: 'application/json' },
      redirect: 'manual',
      signal: AbortSignal.timeout(callDeadlineMs),
    })
    await readBounded(response)
    if (response.status === 200)
      return good(what, 'accepted by the provider', 'the key fetches results; its scope to generate is not checked')
    const soThat =
      response.status === 401
        ? 'webhooks are verified but no result is fetched: configure a valid key'
        : 'GENERATION_API_URL may be wrong, or the provider may be failing'
    return bad(what, `the provider answered ${response.status}`, soThat)
  } catch (error) {
    const is = `no answer: ${describeFailure(error)}`
    return bad(what, is, 'results land from their webhooks and are completed later')
  }
}
