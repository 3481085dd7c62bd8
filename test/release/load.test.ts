import { randomUUID } from 'node:crypto'
import { describe, expect, it, onTestFinished } from 'vitest'
import { checkLedger } from '../../src/provider/accounts/ledger.ts'
import { readCatalog } from '../../src/provider/catalog/catalog-file.ts'
import { cancelRequest, setFaults } from '../../src/provider/operating/commands.ts'
import { long } from '../chaos/length.ts'
import { quickPictures } from '../provider/support/quick-pictures.ts'
import { startTestProvider } from '../provider/support/running-provider.ts'
import { eventually } from '../support/eventually.ts'

const submits = long ? 2000 : 56
const connections = 64

/** Runs `count` calls over `parallel` lanes, each waiting for its answer. */
async function drive(count: number, parallel: number, one: (index: number) => Promise<void>): Promise<void> {
  let next = 0
  const lane = async () => {
    for (let index = next++; index < count; index = next++) await one(index)
  }
  await Promise.all(Array.from({ length: parallel }, lane))
}

describe(`${submits} mixed submits over ${connections} connections with balances that run dry`, () => {
  it('leave a ledger that sums to zero, no negative balance, and each request settled or refunded once', async () => {
    // No edit ends before it is canceled.
    const allSubmitted = Promise.withResolvers<void>()
    const mayAnswer = (path: string) => (path.endsWith('/edits') ? allSubmitted.promise : undefined)
    const { catalog } = readCatalog(long ? undefined : await quickPictures(mayAnswer))
    const provider = await startTestProvider({ catalog: catalog ?? expect.fail() })
    onTestFinished(provider.stop)
    const accounts = ['north', 'east', 'south', 'west']
    const live = await Promise.all(accounts.map((account) => provider.createKey({ account, environment: 'live' })))
    for (const [index, account] of accounts.entries())
      await provider.grant(account, long ? 20.5 + 10 * index : 4.5 + 4 * index)
    const sandbox = await provider.createKey({ account: 'north' })
    const faulty = await provider.createKey({ account: 'east' })
    await setFaults(provider.deps, faulty.id, { failed: 0.5, canceled: 0.5 })
    const shared = Array.from({ length: 20 }, () => randomUUID())

    const seen = new Map<number, number>()
    const accepted = new Set<string>()
    const broken: string[] = []
    await drive(submits, connections, async (index) => {
      const paying = live[index % live.length]?.api_key ?? ''
      const kinds = [
        { key: paying, slug: 'aurora-image', body: { input: { prompt: `p${index}` } } },
        {
          key: paying,
          slug: 'aurora-image',
          body: { input: { prompt: 'same' } },
          idempotency: shared[index % shared.length],
        },
        { key: sandbox.api_key, slug: 'lyra-audio', body: { input: { prompt: 'x' } } },
        { key: faulty.api_key, slug: 'aurora-image', body: { input: { prompt: 'x' } } },
        { key: paying, slug: 'aurora-image', body: { input: { colour: 'red' } } },
        { key: paying, slug: 'no-such-model', body: { input: {} } },
        {
          key: paying,
          slug: 'aurora-image-edit',
          body: { input: { prompt: 'x', image_urls: [`${provider.url}/media/sandbox/a.png`] } },
          cancel: true,
        },
      ]
      const {
        key = '',
        slug,
        body,
        idempotency,
        cancel,
      } = kinds[Math.floor(index / live.length) % kinds.length] ?? expect.fail()
      const headers = idempotency === undefined ? {} : { 'idempotency-key': idempotency }
      const answer = await provider.call('POST', `/v1/models/${slug}`, { key, body, headers })
      seen.set(answer.status, (seen.get(answer.status) ?? 0) + 1)
      if (answer.status >= 500) broken.push(JSON.stringify(answer.body))
      if (answer.status !== 200) return
      accepted.add(answer.body.request_id)
      if (cancel) await cancelRequest(provider.deps, answer.body.request_id).catch(() => {})
    })
    allSubmitted.resolve()
    expect(broken).toEqual([])
    for (const status of [200, 402, 404, 422]) expect(seen.get(status)).toBeGreaterThan(0)

    const { sql } = provider.database
    await eventually(async () => {
      const [row] =
        await sql`select count(*)::int as n from provider.requests where status in ('IN_QUEUE', 'IN_PROGRESS')`
      return row?.['n'] === 0
    }, 400_000)
    const rows = await sql`select id from provider.requests`
    expect(new Set(rows.map(({ id }) => id))).toEqual(accepted)
    expect(await checkLedger(provider.deps.db)).toMatchObject({ ok: true, problems: [] })
    const [sums] = await sql`select sum(amount) = 0 as zero from provider.ledger_entries`
    expect(sums?.['zero']).toBe(true)
    const ends = await sql`select status, kind, count(*)::int as n from provider.requests r
      left join provider.ledger_entries e on e.request_id = r.id and e.book = 'reserved' and e.kind <> 'reserve'
      where environment = 'live' group by 1, 2 order by 1`
    expect(ends.map(({ status, kind }) => [status, kind])).toEqual([
      ['CANCELED', 'refund'],
      ['COMPLETED', 'settle'],
    ])
    const balances = await sql`select id, available::float8 as available from provider.accounts`
    for (const { available } of balances) expect(available).toBeGreaterThanOrEqual(0)
  }, 480_000)
})
