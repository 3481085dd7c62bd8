import { migrationsOf } from '../config/migrations.ts'
import { databaseErrorOf } from '../platform/postgres/errors.ts'
import { isUpToDate } from '../platform/postgres/migrate.ts'
import { createPool, type Database } from '../platform/postgres/postgres.ts'
import { postgresTime } from '../platform/postgres/time.ts'
import { explainPostgres } from '../platform/postgres/words.ts'
import type { GenerationKey } from '../receiver/domain/keys.ts'
import { takeCall } from '../receiver/fetching/call-budget.ts'
import { callDeadlineMs, describeFailure, readBounded } from '../receiver/fetching/provider-client.ts'
import { isSameDatabase, readAsOf } from '../receiver/queries/list-reader.ts'
import { countUntracked } from '../receiver/queries/untracked.ts'
import type { ReceiverSettings } from '../receiver/settings.ts'
import { withReceiver } from './processing.ts'
import { printTable } from './terminal.ts'
import { printable, UsageError, type Command } from './usage.ts'

export const configCommand: Command = {
  help: `
mediadock config check

Reads the receiver's settings as a start would, reaches its database and its standby, and asks
the provider with each key for its account, which costs one call of the key and nothing else.
Says what a start would do. Ends with 78 where a setting is wrong, with 1 where something cannot be used.
`,
  options: {},
  words: ['check'],
  run: async (args, env) => {
    if (args.length !== 1 || args[0] !== 'check') throw new UsageError('config takes one word: check')
    return withReceiver(env, async ({ db, settings }) => {
      const hasSchema = await isUpToDate({ url: settings.databaseUrl, ...migrationsOf.receiver })
      // The budget of calls is in the database, too.
      const keys = hasSchema ? await Promise.all(settings.keys.all.map((key) => keyLine(db, settings, key))) : []
      const tracking = hasSchema ? await trackingLines(db) : []
      const lines = [
        settingsLine(settings),
        schemaLine(settings, hasSchema),
        ...(await standbyLines(db, settings)),
        ...keys,
        ...tracking,
      ]
      printTable(
        ['what', 'is', 'so that'],
        lines.map(({ what, is, soThat }) => [what, is, soThat].map(printable)),
      )
      return lines.every(({ ok }) => ok) ? 0 : 1
    })
  },
}

type Line = { what: string; is: string; soThat: string; ok: boolean }

function settingsLine({ host, port, internalHost, internalPort, production }: ReceiverSettings): Line {
  const soThat = `webhooks come to ${host}:${port}, console and API are at ${internalHost}:${internalPort}`
  return { what: 'settings', is: production ? 'valid for production' : 'valid for a laptop', soThat, ok: true }
}

function schemaLine({ migrateOnStart }: ReceiverSettings, hasSchema: boolean): Line {
  if (hasSchema)
    return { what: 'database', is: 'reached, schema up to date', soThat: 'a start changes nothing in it', ok: true }
  const soThat = migrateOnStart
    ? 'a start brings it up to date'
    : 'a start waits for it: run mediadock migrate receiver, or set MIGRATE_ON_START=true'
  return {
    what: 'database',
    is: 'reached, schema not up to date',
    soThat: `${soThat}; the keys are not asked before`,
    ok: migrateOnStart,
  }
}

async function standbyLines(db: Database, { databaseReadUrl: url }: ReceiverSettings): Promise<Line[]> {
  if (url === undefined) return []
  const what = 'standby'
  const pool = createPool({ url, max: 1 })
  try {
    const asOf = await readAsOf(pool.db)
    const soThat = 'lists are read from the primary: correct DATABASE_READ_URL'
    if (asOf && (await isSameDatabase(db, pool.db)) === false)
      return [{ what, is: 'reached, and a standby of another database', soThat, ok: false }]
    if (asOf)
      return [
        {
          what,
          is: `reached, its last change is of ${asOf.toISOString()}`,
          soThat: 'lists are read from it',
          ok: true,
        },
      ]
    const is = 'reached, and no standby, or without a change since its start'
    return [{ what, is, soThat, ok: false }]
  } catch (error) {
    const is = `not reached: ${explainPostgres(error)?.words ?? String(databaseErrorOf(error))}`
    return [{ what, is, soThat: 'lists are read from the primary until it answers', ok: false }]
  } finally {
    await pool.close()
  }
}

/** Says once that untracked requests are known by their webhooks alone; nothing where all were tracked. */
async function trackingLines(db: Database): Promise<Line[]> {
  const { untracked, requests } = await countUntracked(db)
  if (untracked === 0) return []
  const is = `${untracked} of the latest ${requests} requests were not tracked before their webhook came`
  const soThat =
    'polling finds tracked requests only, and not these if a webhook is lost: submit by POST /api/generations, or track each by POST /api/requests'
  return [{ what: 'tracking', is, soThat, ok: true }]
}

/** One harmless call (spec, Endpoints: account), within the budget that all replicas share. */
async function keyLine(db: Database, settings: ReceiverSettings, key: GenerationKey): Promise<Line> {
  const what = `key ${key.name} (${key.environment ?? 'environment unknown'})`
  if (key.retired || key.apiKey === undefined)
    return { what, is: 'retired', soThat: 'its secret verifies webhooks, and no calls are made with it', ok: true }
  const { fetchRatePerMinute: limitPerMinute, generationApiUrl } = settings
  const grant = await takeCall(db, {
    keyName: key.name,
    limitPerMinute,
    purpose: 'completing',
    now: postgresTime(),
  })
  if (!grant.ok)
    return {
      what,
      is: `not asked: ${grant.reason}`,
      soThat: `it has calls again in ${Math.ceil(grant.retryAfterSeconds)} s`,
      ok: true,
    }
  try {
    const response = await fetch(`${generationApiUrl}/v1/account`, {
      headers: { authorization: `Bearer ${key.apiKey}`, accept: 'application/json' },
      redirect: 'manual',
      signal: AbortSignal.timeout(callDeadlineMs),
    })
    await readBounded(response)
    if (response.status === 200)
      return {
        what,
        is: 'accepted by the provider',
        soThat: 'results are fetched and generations submitted with it',
        ok: true,
      }
    const soThat =
      response.status === 401
        ? 'webhooks are verified, and nothing is fetched: give a valid key'
        : 'it may be the provider: try again'
    return { what, is: `answered ${response.status}`, soThat, ok: false }
  } catch (error) {
    return {
      what,
      is: `not answered: ${describeFailure(error)}`,
      soThat: 'results land as their webhooks say, and are completed later',
      ok: false,
    }
  }
}
