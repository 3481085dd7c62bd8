import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { prepareSchema } from '../../../src/platform/postgres/await-postgres.ts'
import { freePort } from '../../provider/support/free-port.ts'
import { fatal } from '../../start/support/failing-start.ts'
import { preferredServer, withTestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { watchedLogger } from '../support/watched-logger.ts'

// release/postgres-at-start.test.ts starts both programs with each of these.

const folder = path.resolve(import.meta.dirname, '../../../drizzle/receiver')
const start = (url: string, more: { migrateOnStart?: boolean; production?: boolean } = {}) => {
  const { logger, lines } = watchedLogger()
  const ended = new AbortController()
  const at = { url, schema: 'mediadock', folder, program: 'receiver', migrateOnStart: true, production: true, logger }
  return { prepared: prepareSchema({ ...at, ...more }, ended.signal), lines, stop: () => ended.abort() }
}

describe('the schema at a start', () => {
  it.each(fatal)('with %s ends it at once, with that cause', async (_cause, urlOf, line) => {
    const { url } = await withTestDatabase(preferredServer)
    const failure: unknown = await start(await urlOf(url)).prepared.catch((error: unknown) => error)
    expect(`mediadock: ${failure instanceof Error ? failure.message : 'no error'}`).toMatch(line)
  })

  it('is waited for in production while Postgres is unreachable, which is logged once, until the stop', async () => {
    const { prepared, lines, stop } = start(`postgres://u:hush@127.0.0.1:${await freePort()}/d`)
    await eventually(() => lines().length > 0)
    stop()
    expect(await prepared).toBe(false)
    expect(lines()).toEqual([
      expect.stringMatching(/"reason":"Postgres cannot be reached at 127\.0\.0\.1:\d+, connection refused/),
    ])
    expect(lines().join('')).not.toContain('hush')
  })

  it('is not waited for on a laptop', async () => {
    const url = `postgres://u:hush@127.0.0.1:${await freePort()}/d`
    await expect(start(url, { production: false }).prepared).rejects.toThrow(/^Postgres cannot be reached/)
  })

  it('is waited for with MIGRATE_ON_START=false, until it is there', async () => {
    const { url, sql } = await withTestDatabase(preferredServer)
    await sql`alter schema mediadock rename to later`
    const { prepared, lines } = start(url, { migrateOnStart: false })
    await eventually(() => lines().length > 0)
    expect(lines()).toEqual([expect.stringContaining('run \\"mediadock migrate receiver\\"')])
    await sql`alter schema later rename to mediadock`
    expect(await prepared).toBe(true)
  })
})
