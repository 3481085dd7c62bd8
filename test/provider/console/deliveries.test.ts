import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { call, startTestProvider, type TestProvider } from '../support/running-provider.ts'

let provider: TestProvider
beforeAll(async () => {
  provider = await startTestProvider({ dispatchIntervalMs: 600_000 })
  for (const account of ['many', 'few']) await provider.createKey({ account })
  await fill('many', 130)
  await fill('few', 20)
})
afterAll(() => provider.stop())

const get = (path: string) => call(provider.consoleUrl, 'GET', path, { headers: { accept: 'text/html' } })
const idsIn = (page: string) => [...page.matchAll(/href="\/deliveries\/([0-9a-f-]{36})"/g)].map(([, id]) => id)
const olderIn = (page: string) => /href="(\/deliveries\?[^"]+)" rel="next"/.exec(page)?.[1]?.replaceAll('&amp;', '&')

/** `count` deliveries of one account, some in the same microsecond. One of ten was given up, one of ten is retrying. */
async function fill(account: string, count: number) {
  await provider.database.sql`
    insert into provider.requests (id, account_id, api_key_id, environment, model, input, cost, status, created_at)
    select md5(${account} || n)::uuid, ${account}, gen_random_uuid(), 'sandbox', case when n % 2 = 0 then 'aurora-image' else 'lyra-audio' end, '{}', 4,
      'COMPLETED', now() - make_interval(secs => n) from generate_series(1, ${count}::int) n`
  await provider.database.sql`
    with made as (
      insert into provider.deliveries (id, request_id, account_id, api_key_id, url, host, body, state, attempts, due_at, created_at)
      select gen_random_uuid(), md5(${account} || n)::uuid, ${account}, gen_random_uuid(), 'https://hooks.example.com/', 'hooks.example.com', '{}',
        case n % 10 when 0 then 'failed' when 1 then 'pending' else 'delivered' end, case n % 10 when 0 then 6 when 1 then 2 else 1 end,
        now() + interval '1 hour', now() - make_interval(secs => n / 3) - interval '1.000007 s'
      from generate_series(1, ${count}::int) n
      returning id, attempts, state, created_at
    )
    insert into provider.delivery_attempts (delivery_id, number, started_at, duration_ms, ok, http_status, detail)
    select id, number, created_at + make_interval(secs => number), 5, state = 'delivered', case state when 'delivered' then 200 else 503 end,
      case state when 'delivered' then 'fine' else '<i>away' end
    from made cross join lateral generate_series(1, attempts) number`
}

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

describe('the list of deliveries', () => {
  it('shows each delivery once, newest first, when Older is followed to the end', async () => {
    const { ids, pages } = await walk('/deliveries')
    const all = await provider.database.sql`select id from provider.deliveries order by created_at desc, id desc`
    expect(ids).toEqual(all.map(({ id }) => id))
    expect(pages).toBe(3)
  })

  it.each([
    ['state=given+up', 15],
    ['state=retrying&account=few', 2],
    ['account=many&state=delivered', 104],
  ])('shows by %s those %i', async (filter, count) => {
    expect((await walk(`/deliveries?${filter}`)).ids).toHaveLength(count)
  })

  it.each([
    ['state=failed', 'the filter state must be one of waiting'],
    ['account=many&account=few', 'the filter account must be given once'],
    ['before=1_------------------------------------', 'start with the newest'],
  ])('refuses %s, which it cannot apply', async (filter, why) => {
    const { status, body } = await get(`/deliveries?${filter}`)
    expect([status, body.includes(why), idsIn(body)]).toEqual([400, true, []])
  })

  it('explains an empty list', async () => {
    expect((await get('/deliveries?account=nobody')).body).toContain('No delivery.')
    expect((await get('/deliveries?q=1234')).body).toContain('is not a whole request id or delivery id')
  })

  it('finds a delivery by request id and by delivery id, and shows its attempts', async () => {
    const [one] = await provider.database
      .sql`select id, request_id from provider.deliveries where state = 'failed' and attempts = 6 limit 1`
    for (const q of [one?.['id'], one?.['request_id']])
      expect(idsIn((await get(`/deliveries?q=${q}`)).body)).toEqual([one?.['id']])
    const { body } = await get(`/deliveries?q=${one?.['id']}`)
    expect(body).toContain('503, 503, 503, 503, 503, 503')
    expect(body).toContain('&lt;i&gt;away')
    const page = (await get(`/deliveries/${one?.['id']}`)).body
    expect(page.split('&lt;i&gt;away')).toHaveLength(7)
  })
})
