import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { chargeOf } from '../../../src/provider/console/parts.ts'
import { call, startTestProvider, type TestProvider } from '../support/running-provider.ts'

let provider: TestProvider
beforeAll(async () => {
  provider = await startTestProvider()
  for (const account of ['many', 'few']) await provider.createKey({ account })
})
afterAll(() => provider.stop())

const get = (path: string) => call(provider.consoleUrl, 'GET', path, { headers: { accept: 'text/html' } })
const idsIn = (page: string) => [...page.matchAll(/href="\/requests\/([0-9a-f-]{36})"/g)].map(([, id]) => id)
const olderIn = (page: string) => /href="(\/requests\?[^"]+)" rel="next"/.exec(page)?.[1]?.replaceAll('&amp;', '&')

/** `count` requests of one account, one a second, some in the same microsecond. */
const fill = (account: string, count: number, failedEvery: number) => provider.database.sql`
  insert into provider.requests (id, account_id, api_key_id, environment, model, input, cost, status, created_at)
  select gen_random_uuid(), ${account}, (select id from provider.api_keys where account_id = ${account}), 'sandbox',
    case when n % 2 = 0 then 'aurora-image' else 'lyra-audio' end, '{}', 4,
    case when n % ${failedEvery}::int = 0 then 'FAILED' else 'COMPLETED' end, now() - make_interval(secs => n / 3) - interval '1.000007 s'
  from generate_series(1, ${count}::int) n`

async function walk(from: string): Promise<{ ids: (string | undefined)[]; pages: number }> {
  const ids: (string | undefined)[] = []
  let pages = 0
  for (let path: string | undefined = from; path !== undefined; pages += 1) {
    const { status, body } = await get(path)
    expect(status).toBe(200)
    ids.push(...idsIn(body))
    path = olderIn(body)
  }
  return { ids, pages }
}

it.each([
  ['live', 'IN_QUEUE', '4'],
  ['live', 'COMPLETED', '4'],
  ['live', 'FAILED', '0'],
  ['live', 'CANCELED', '0'],
  ['sandbox', 'COMPLETED', '0'],
])('a %s request that is %s costs its account %s of 4 credits', (environment, status, charge) => {
  expect(chargeOf({ environment, status, cost: '4' })).toBe(charge)
})

describe('the list of requests', () => {
  it('shows each request once, newest first, when Older is followed to the end', async () => {
    await fill('many', 130, 10)
    await fill('few', 20, 10)
    const { ids, pages } = await walk('/requests')
    const all = await provider.database.sql`select id from provider.requests order by created_at desc, id desc`
    expect(ids).toEqual(all.map(({ id }) => id))
    expect(pages).toBe(3)
    expect((await walk('/requests?account=few&model=lyra-audio')).ids).toHaveLength(10)
    expect((await walk('/requests?environment=live')).ids).toEqual([])
    expect((await walk('/requests?status=FAILED&environment=sandbox')).ids).toHaveLength(15)
  })

  it('finds all rare matches, searching a bounded number of rows per page', async () => {
    await fill('many', 45_000, 9000)
    await provider.database.sql`analyze provider.requests`
    const { ids, pages } = await walk('/requests?status=FAILED')
    const all = await provider.database
      .sql`select id from provider.requests where status = 'FAILED' order by created_at desc, id desc`
    expect(ids).toEqual(all.map(({ id }) => id))
    expect(pages).toBe(3)
  })

  it('finds a request by its id and by its Idempotency-Key', async () => {
    const key = await provider.createKey({ account: 'sought' })
    const submitted = async (idempotencyKey: string) =>
      provider.call('POST', '/v1/models/aurora-image', {
        key: key.api_key,
        headers: { 'idempotency-key': idempotencyKey },
        body: { input: { prompt: 'x' } },
      })
    const idempotencyKey = randomUUID()
    const { body } = await submitted(idempotencyKey)
    await submitted(randomUUID())
    for (const q of [body.request_id, idempotencyKey, ` ${idempotencyKey.toUpperCase()} `]) {
      const page = await get(`/requests?${new URLSearchParams({ q }).toString()}`)
      expect(idsIn(page.body)).toEqual([body.request_id])
      expect(page.body).toMatch(/data-ago><span[^]*As of <time datetime="2/)
    }
    expect(idsIn((await get(`/requests?q=${randomUUID()}`)).body)).toEqual([])
    const short = await get(`/requests?q=${idempotencyKey.slice(0, 8)}`)
    expect([idsIn(short.body), short.body.includes('is not a whole request id')]).toEqual([[], true])
  })

  it('reports a filter that it cannot apply, instead of showing unfiltered requests', async () => {
    for (const [query, said] of [
      ['status=failed', 'the filter status must be one of IN_QUEUE'],
      ['environment=prod', 'the filter environment must be one of live'],
      [`account=${'x'.repeat(101)}`, 'the filter account must have at most 100 characters'],
      ['status=FAILED&status=COMPLETED', 'the filter status'],
      ['before=1_------------------------------------', 'start with the newest'],
    ] as const) {
      const { status, body } = await get(`/requests?${query}`)
      expect([status, body.includes(said), idsIn(body)], query).toEqual([400, true, []])
    }
    expect((await get('/requests?account=%20few&status=&q=')).body).toContain('href="/accounts/few"')
    expect((await get('/requests?model=gone-model')).body).toContain(
      '<option value="gone-model" selected>gone-model</option>',
    )
  })
})

it('lists the newest 500 accounts', async () => {
  await provider.database
    .sql`insert into provider.accounts (id, created_at) select 'one-of-many-' || n, now() from generate_series(1, 510) n`
  expect((await get('/')).body).toContain('The newest 500 accounts.')
})
