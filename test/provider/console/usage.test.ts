import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { readUsage, readUsageLines } from '../../../src/provider/console/usage-reads.ts'
import { call, startTestProvider, type TestProvider } from '../support/running-provider.ts'

let provider: TestProvider
beforeAll(async () => {
  provider = await startTestProvider()
  for (const account of ['busy', '=1+1']) await provider.createKey({ account, environment: 'live' })
})
afterAll(() => provider.stop())

const now = new Date()
const today = `${now.toISOString().slice(0, 10)}T00:00:00.000Z`
const dayMs = 86_400_000

/** Requests of one day, `daysAgo` days ago. */
const fill = (
  account: string,
  daysAgo: number,
  count: number,
  of: { status?: string; environment?: string; model?: string } = {},
) =>
  provider.database.sql`
  insert into provider.requests (id, account_id, api_key_id, environment, model, input, cost, status, created_at)
  select gen_random_uuid(), ${account}, gen_random_uuid(), ${of.environment ?? 'live'}, ${of.model ?? 'aurora-image'}, '{}', 4.25,
    ${of.status ?? 'COMPLETED'}, ${today}::timestamptz - make_interval(days => ${daysAgo}::int) + make_interval(secs => n)
  from generate_series(0, ${count - 1}::int) n`

describe('usage', () => {
  beforeAll(async () => {
    await fill('busy', 0, 2)
    await fill('busy', 3, 5, { model: 'lyra-audio' })
    await fill('busy', 3, 2, { status: 'FAILED' })
    await fill('busy', 3, 1, { environment: 'sandbox' })
    await fill('=1+1', 29, 3)
    await fill('busy', 30, 7)
  })

  it('counts the last 30 days by day, model and account, and the credits of completed live requests', async () => {
    const { steps, models, accounts, completeFrom } = await readUsage(provider.deps.db, { span: 'day', now })
    expect(completeFrom).toBeUndefined()
    expect(steps).toHaveLength(30)
    const used = steps.filter(({ requests }) => requests > 0)
    expect(
      used.map(({ from, requests, failed, credits }) => [
        (Date.parse(today) - Date.parse(from)) / dayMs,
        requests,
        failed,
        credits,
      ]),
    ).toEqual([
      [29, 3, 0, '12.75'],
      [3, 8, 2, '21.25'],
      [0, 2, 0, '8.5'],
    ])
    expect(models.map(({ name, requests, failed }) => [name, requests, failed])).toEqual([
      ['aurora-image', 8, 2],
      ['lyra-audio', 5, 0],
    ])
    expect(accounts.map(({ name, requests, credits }) => [name, requests, credits])).toEqual([
      ['busy', 10, '29.75'],
      ['=1+1', 3, '12.75'],
    ])
    const some = await readUsage(provider.deps.db, {
      span: 'day',
      now,
      account: 'busy',
      model: 'aurora-image',
      environment: 'live',
    })
    expect(some.steps.reduce((sum, { requests }) => sum + requests, 0)).toBe(4)
  })

  it('begins with the first complete day when there are too many requests', async () => {
    // The fourth request from the end is of three days ago, so not all of that day was read.
    const { steps, completeFrom, accounts } = await readUsage(provider.deps.db, { span: 'day', now, lookAt: 3 })
    expect(completeFrom).toBe(new Date(Date.parse(today) - 2 * dayMs).toISOString())
    expect(steps.map(({ requests }) => requests)).toEqual([0, 0, 2])
    expect(accounts.map(({ name, requests }) => [name, requests])).toEqual([['busy', 2]])
    const all = await readUsage(provider.deps.db, { span: 'day', now, lookAt: 13 })
    expect([all.completeFrom, all.accounts.length]).toEqual([undefined, 2])
    const isWhole = async (lookAt: number) =>
      (await readUsageLines(provider.deps.db, { span: 'day', now, lookAt })).isWhole
    expect([await isWhole(12), await isWhole(13)]).toEqual([false, true])
  })

  it('is shown with a table, and as CSV without formulas', async () => {
    const page = await call(provider.consoleUrl, 'GET', '/usage?account=busy', { headers: { accept: 'text/html' } })
    expect(page.body).toContain('Requests: 10, of which 2 failed')
    expect(page.body).toContain('As a table')
    expect(page.body).not.toContain('with the most requests')
    expect((await call(provider.consoleUrl, 'GET', '/usage?per=minute')).status).toBe(400)
    const hours = await call(provider.consoleUrl, 'GET', '/usage?per=hour&model=nothing', {
      headers: { accept: 'text/html' },
    })
    expect(hours.body.split('<title>')).toHaveLength(1 + 1 + 2 * 24)
    const { headers, body } = await call(provider.consoleUrl, 'GET', '/usage.csv?account=%3D1%2B1')
    expect(headers.get('content-disposition')).toBe('attachment; filename=usage-by-day.csv')
    expect(body.split('\r\n')).toEqual([
      'from,account,model,environment,requests,completed,failed,canceled,credits',
      `${new Date(Date.parse(today) - 29 * dayMs).toISOString()},'=1+1,aurora-image,live,3,3,0,0,12.75`,
      '',
    ])
  })
})
