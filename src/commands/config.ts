import { migrationsOf } from '../config/config.ts'
import { HttpError } from '../platform/http/http.ts'
import { isUpToDate } from '../platform/postgres/migrate.ts'
import type { Database } from '../platform/postgres/postgres.ts'
import type { SourceReads } from '../receiver/accounts/source-reads.ts'
import type { GenerationKey } from '../receiver/domain/keys.ts'
import { countUntracked } from '../receiver/queries/trouble.ts'
import type { ReceiverSettings } from '../receiver/settings.ts'
import { providerReadsOf, type WithReceiver, withReceiver } from './processing.ts'
import { defineCommand, printable, printTable, UsageError } from './usage.ts'

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
    return withReceiver(env, async (given) => {
      const { db, settings } = given
      const hasSchema = await isUpToDate({ url: settings.databaseUrl, ...migrationsOf.receiver })
      // Without the schema there is no call budget, so the keys are not checked.
      const read = providerReadsOf(given)
      const keys = hasSchema ? await Promise.all(settings.keys.all.map((key) => keyLine(given, read, key))) : []
      const tracking = hasSchema ? await trackingLines(db) : []
      const { host, port, internalHost, internalPort, production } = settings
      const soThat = `listens for webhooks on ${host}:${port}, console and API on ${internalHost}:${internalPort}`
      const settingsLine = good('settings', production ? 'valid for production' : 'valid for a laptop', soThat)
      const lines = [settingsLine, schemaLine(settings, hasSchema), ...keys, ...tracking]
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
async function keyLine({ settings }: WithReceiver, read: SourceReads, key: GenerationKey): Promise<Line> {
  const what = `key ${key.name} (${key.environment ?? 'environment unknown'})`
  if (key.retired || key.apiKey === undefined)
    return good(what, key.retired ? 'retired' : 'without api_key', 'its secret verifies webhooks; it makes no calls')
  if (key.source.name !== settings.keys.defaultSource.name)
    return good(what, 'not checked', 'only keys of the default source are checked')
  try {
    const { status } = await read({ path: '/v1/account' }, key.name)
    if (status === 200)
      return good(what, 'accepted by the provider', 'the key fetches results; its scope to generate is not checked')
    const soThat =
      status === 401
        ? 'webhooks are verified but no result is fetched: configure a valid key'
        : 'GENERATION_API_URL may be wrong, or the provider may be failing'
    return bad(what, `the provider answered ${status}`, soThat)
  } catch (error) {
    if (!(error instanceof HttpError)) throw error
    return error.code === 'no_call_left'
      ? good(what, 'not checked', error.message)
      : bad(what, error.message, 'results land from their webhooks and are completed later')
  }
}
