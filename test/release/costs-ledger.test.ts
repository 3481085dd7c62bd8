import { beforeAll, expect, it } from 'vitest'
import { createClient } from '../../src/client/read-results.ts'
import { builtInCatalog } from '../../src/provider/catalog/catalog-file.ts'
import { freePort } from '../provider/support/free-port.ts'
import { startTestProvider, type TestProvider } from '../provider/support/running-provider.ts'
import { call } from '../receiver/api/calls.ts'
import { keysOf, type TestReceiver } from '../support/receiver.ts'
import { withReceiver } from '../support/with-receiver.ts'

/** Prices that no binary fraction holds: their sums as doubles differ in the last place. */
const prices: Record<string, number> = { 'aurora-image': 0.1, 'lyra-audio': 0.07 }

let provider: TestProvider
let receiver: TestReceiver

beforeAll(async () => {
  const port = await freePort()
  const catalog = new Map(
    [...builtInCatalog()].map(([slug, model]) => {
      const credits_base = prices[slug]
      return [slug, credits_base === undefined ? model : { ...model, pricing: { credits_base } }]
    }),
  )
  provider = await startTestProvider({ webhookAllow: [`http://127.0.0.1:${port}`], catalog })
  const first = await provider.createKey({ name: 'first', environment: 'live' })
  const second = await provider.createKey({ name: 'second', account: first.account, environment: 'live' })
  const sandbox = await provider.createKey({ name: 'sandbox', account: first.account, environment: 'sandbox' })
  await provider.grant(first.account, 10)
  const keys = keysOf(first, second, sandbox)
  const its = await withReceiver({
    providerUrl: provider.url,
    followsUp: true,
    settings: { port, keys, webhookPublicUrl: `http://127.0.0.1:${port}/webhooks` },
  })
  ;({ receiver } = its)
  return async () => {
    await its.stop()
    await provider.stop()
  }
})

it("costs by model, key and user add up to the provider's ledger, to the last decimal", async () => {
  const client = createClient({ url: receiver.internalUrl })
  const groups: Record<string, Map<string, string[]>> = {
    model: new Map(),
    key_name: new Map(),
    'metadata.user': new Map(),
  }
  const generate = async (model: string, keyName: string, user: string) => {
    const { result } = await client.generate(model, { prompt: 'a boat' }, { keyName, metadata: { user } })
    if (keyName === 'sandbox') return
    for (const [by, group] of [
      ['model', model] as const,
      ['key_name', keyName] as const,
      ['metadata.user', user] as const,
    ])
      groups[by]?.set(group, [...(groups[by].get(group) ?? []), result.request_id])
  }
  await Promise.all([
    ...[1, 2, 3].map(() => generate('aurora-image', 'first', 'ann')),
    generate('aurora-image', 'second', 'bob'),
    generate('lyra-audio', 'second', 'ann'),
    generate('aurora-image', 'sandbox', 'ann'),
  ])
  const ledgerOf = async (ids: string[]) => {
    const [row] = await provider.database.sql`
      select sum(amount)::text as spent from provider.ledger_entries
      where kind = 'settle' and amount > 0 and request_id = any(${ids}::uuid[])`
    return Number(row?.['spent'])
  }
  for (const [by, members] of Object.entries(groups)) {
    const { json } = await call(receiver, `GET /api/costs?by=${by}`)
    const got = json.data.map((one: { group: string; credits_settled: number }) => [one.group, one.credits_settled])
    const ledger = await Promise.all([...members].map(async ([group, ids]) => [group, await ledgerOf(ids)]))
    expect(Object.fromEntries(got)).toEqual(Object.fromEntries(ledger))
    expect(json.total).toEqual({ requests: 5, credits_settled: 0.47, credits_reserved: 0 })
    expect(await ledgerOf([...members.values()].flat())).toBe(0.47)
  }
  // Engines have the lowest priority.
}, 480_000)
