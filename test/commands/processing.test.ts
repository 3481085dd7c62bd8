import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { deliveryId } from '../../src/receiver/domain/delivery.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { imageResult, json, startProviderStand, type ProviderStand } from '../support/provider-stand.ts'
import { liveKey } from '../support/receiver.ts'
import { failed, okImage, type Sample } from '../support/webhooks.ts'
import { linesOf, mediadockHere } from './mediadock.ts'

let database: TestDatabase
let stand: ProviderStand

beforeAll(async () => {
  database = await createTestDatabase()
  stand = await startProviderStand()
})
beforeEach(async () => {
  stand.calls.length = 0
  stand.answer((id, _req, res) => json(res, 200, imageResult(id, 2)))
  await database.sql`truncate mediadock.deliveries, mediadock.requests, mediadock.media, mediadock.attempts, mediadock.inbox, mediadock.audit, mediadock.polls, mediadock.reconcile_runs`
})
afterAll(async () => {
  await stand.close()
  await database.drop()
})

const settings = () => ({ DATABASE_URL: database.url, GENERATION_API_URL: stand.url })
const run = (...args: string[]) => mediadockHere(settings(), ...args)

/** Inserts a parked delivery as landing would. */
async function parked({ requestId, body }: Sample, reason = 'landing_failed'): Promise<string> {
  const webhookId = randomUUID()
  const id = deliveryId(webhookId, body)
  const now = new Date().toISOString()
  await database.sql`insert into mediadock.deliveries (id, webhook_id, request_id, status, key_name, signed_at, received_at, headers, body, parked_reason)
    values (${id}, ${webhookId}, ${requestId}, 'OK', 'live', ${now}, ${now}, '{}', ${body}, ${reason})`
  return id
}

async function statusOf(requestId: string): Promise<string | undefined> {
  const [row] = await database.sql`select status from mediadock.results where request_id = ${requestId}`
  return row?.['status']
}

/** The audit's entries, oldest first. */
async function audit(): Promise<object[]> {
  return [...(await database.sql`select via, actor, action, target, detail from mediadock.audit order by id`)]
}

const actor = expect.stringMatching(/^\S+@\S+$/)

describe('mediadock replay', () => {
  it('shows the changes in a dry run without writing them, then writes them', async () => {
    const [one, two] = [okImage(), failed()]
    await parked(one)
    await parked(two)
    await parked(failed(), 'key_mismatch')
    const dry = await run('replay', '--state', 'parked', '--reason', 'landing_failed', '--dry-run')
    expect(dry).toMatchObject({ code: 0, stderr: '2 deliveries to replay\n' })
    expect(dry.stdout).toMatch(new RegExp(`${one.requestId} +landed +- +COMPLETED +\\+1 -0`))
    expect(dry.stdout).toContain('2 would be replayed, 2 would change, 0 failed')
    expect(await statusOf(one.requestId)).toBeUndefined()
    expect(await audit()).toEqual([])

    const real = await run('replay', '--state', 'parked', '--reason', 'landing_failed', '--json')
    expect(real.code).toBe(0)
    expect(linesOf(real.stdout)).toMatchObject([
      { replayed: 2, changes: [{ outcome: 'landed' }, { outcome: 'landed' }], failed: [] },
    ])
    expect([await statusOf(one.requestId), await statusOf(two.requestId)]).toEqual(['COMPLETED', 'FAILED'])
    const detail = { replayed: 2, changed: 2, failed: 0 }
    expect(await audit()).toEqual([
      { via: 'cli', actor, action: 'replay_many', target: 'state=parked&reason=landing_failed', detail },
    ])
  })

  it('takes ids, and replays the others if one is unknown', async () => {
    const sample = failed()
    const id = await parked(sample)
    const unknown = randomUUID()
    const { code, stdout, stderr } = await run('replay', unknown, id.toUpperCase())
    expect(code).toBe(1)
    expect(stderr).toBe(`mediadock: ${unknown}: delivery not found\n`)
    expect(stdout).toContain('1 replayed, 1 changed, 1 failed')
    expect(await statusOf(sample.requestId)).toBe('FAILED')
  })

  it.each([
    ['nothing', []],
    ['ids and filters', [randomUUID(), '--state', 'parked']],
    ['a word that is no id', ['parked']],
    ['a wrong filter', ['--state', 'done']],
  ])('is refused with %s', async (_what, args) => {
    const { code, stderr } = await run('replay', ...args)
    expect(code).toBe(2)
    expect(stderr).toMatch(/^mediadock: [^\n]+\n$/)
  })

  it('requires the settings of the receiver', async () => {
    const wrong = { DATABASE_URL: database.url, GENERATION_KEYS: '[]' }
    expect(await mediadockHere(wrong, 'replay', '--state', 'parked')).toMatchObject({
      code: 78,
      stderr: expect.stringContaining('GENERATION_KEYS'),
    })
  })
})

describe('mediadock reconcile', () => {
  const track = async (ageSeconds: number) => {
    const id = randomUUID()
    await database.sql`insert into mediadock.requests (request_id, key_name, tracked_at) values (${id}, 'live', now() - make_interval(secs => ${ageSeconds}))`
    return id
  }

  it('polls only overdue requests', async () => {
    const overdue = await track(600)
    const fresh = await track(1)
    const { code, stdout } = await run('reconcile')
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: 'scanned 1, landed 1, running 0, not found 0, failed 0, postponed 0\n',
    })
    expect(stand.calls).toEqual([{ path: `/v1/requests/${overdue}`, authorization: `Bearer ${liveKey.api_key}` }])
    expect([await statusOf(overdue), await statusOf(fresh)]).toEqual(['COMPLETED', 'IN_QUEUE'])
    expect(await audit()).toMatchObject([
      { via: 'cli', actor, action: 'reconcile_run', target: null, detail: { scanned: 1, landed: 1 } },
    ])
    expect(await database.sql`select trigger, outcome, landed from mediadock.reconcile_runs`).toMatchObject([
      { trigger: 'manual', outcome: 'ok', landed: 1 },
    ])
    expect(await database.sql`select request_id, key_name, outcome, detail from mediadock.polls`).toMatchObject([
      { request_id: overdue, key_name: 'live', outcome: 'result', detail: 'COMPLETED' },
    ])
  })

  it('polls one request now, regardless of its age', async () => {
    const id = await track(1)
    const { code, stdout } = await run('reconcile', id.toUpperCase(), '--json')
    expect({ code, lines: linesOf(stdout) }).toEqual({
      code: 0,
      lines: [{ scanned: 1, landed: 1, running: 0, not_found: 0, failed: 0, postponed: 0 }],
    })
    expect(await statusOf(id)).toBe('COMPLETED')
    expect(await audit()).toMatchObject([{ action: 'reconcile', target: id, detail: { landed: 1 } }])
  })

  it('polls the others where Postgres refuses to claim one, says so, and exits with 1', async () => {
    const [refused, other] = [await track(700), await track(600)]
    await database.sql.unsafe(`alter table mediadock.requests add constraint refusing
      check (request_id <> '${refused}' or poll_claims = 0) not valid`)
    onTestFinished(async () => void (await database.sql`alter table mediadock.requests drop constraint refusing`))
    expect(await run('reconcile')).toMatchObject({
      code: 1,
      stdout: expect.stringContaining('landed 1'),
      stderr: `mediadock: Postgres refuses to claim 1 requests, such as ${refused}: see its log\n`,
    })
    expect([await statusOf(refused), await statusOf(other)]).toEqual(['IN_QUEUE', 'COMPLETED'])
  })

  it('exits with 1 if the provider fails or the request is not tracked, with 2 if the id is not a uuid', async () => {
    await track(600)
    stand.answer((_id, _req, res) => json(res, 500, {}))
    expect(await run('reconcile')).toMatchObject({ code: 1, stdout: expect.stringContaining('failed 1') })
    const unknown = randomUUID()
    expect(await run('reconcile', unknown)).toMatchObject({
      code: 1,
      stderr: `mediadock: request ${unknown} is not tracked, or another transaction holds it\n`,
    })
    expect(await run('reconcile', 'x')).toMatchObject({ code: 2, stderr: 'mediadock: the request_id must be a uuid\n' })
  })
})
