import { describe, expect, it, onTestFinished } from 'vitest'
import { startTestProvider } from '../provider/support/running-provider.ts'
import { startTarpit } from '../provider/support/tarpit.ts'
import { startWebhookCatcher } from '../provider/support/webhook-catcher.ts'
import { testServers, usualServers } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'

const tickMs = 500
/** Far beyond what is waited for. */
const webhookTimeoutMs = 20_000

async function setUp(tarpitCount: number, server: (typeof testServers)[number]) {
  const tarpits = await Promise.all(Array.from({ length: tarpitCount }, startTarpit))
  const quick = await startWebhookCatcher()
  const webhookAllow = [...tarpits, quick].map(({ origin }) => origin)
  const provider = await startTestProvider({ webhookAllow, dispatchIntervalMs: tickMs, webhookTimeoutMs }, server)
  onTestFinished(async () => {
    for (const tarpit of tarpits) tarpit.close()
    await provider.stop()
    await quick.close()
  })
  const submit = async (key: string, origin: string) => {
    const body = { input: { prompt: 'x' }, webhook_url: `${origin}/hook` }
    expect((await provider.call('POST', '/v1/models/aurora-image', { key, body })).status).toBe(200)
  }
  const submitMany = async (key: string, count: number) => {
    for (let sent = 0; sent < count; sent += 25) {
      await Promise.all(
        Array.from({ length: 25 }, (_, index) => submit(key, tarpits[(sent + index) % tarpits.length]?.origin ?? '')),
      )
    }
  }
  const held = () => tarpits.reduce((sum, tarpit) => sum + tarpit.open(), 0)
  return { provider, tarpits, quick, submit, submitMany, held }
}

describe.each(usualServers)('webhooks, on the %s server', (server) => {
  it("of one account, 75 to 24 hosts that never answer, delay no other account's", async () => {
    const { provider, quick, submit, submitMany, held } = await setUp(24, server)
    const greedy = (await provider.createKey({ account: 'greedy' })).api_key
    const modest = (await provider.createKey({ account: 'modest' })).api_key
    await submitMany(greedy, 75)
    await eventually(() => held() >= 20)
    await submit(modest, quick.origin)
    await eventually(() => quick.caught.length === 1, tickMs + 2500)
    // A quarter of all that one process sends at the same time.
    expect(held()).toBeLessThanOrEqual(32)
  })

  it('of seven such accounts do not delay others either', async () => {
    const { provider, quick, submit, submitMany, held } = await setUp(24, server)
    for (let account = 1; account <= 7; account += 1) {
      await submitMany((await provider.createKey({ account: `greedy-${account}` })).api_key, 25)
    }
    const modest = (await provider.createKey({ account: 'modest' })).api_key
    await eventually(() => held() >= 60)
    await submit(modest, quick.origin)
    await eventually(() => quick.caught.length === 1, tickMs + 2500)
  })

  it("to a host that answers this account at once are not held up by another account's to the same host", async () => {
    let greedyIds: Set<unknown> | undefined
    const slowly = await startWebhookCatcher(({ headers }, res) => {
      if (greedyIds && !greedyIds.has(headers['x-service-webhook-id'])) res.end()
    })
    const provider = await startTestProvider(
      { webhookAllow: [slowly.origin], dispatchIntervalMs: tickMs, webhookTimeoutMs },
      server,
    )
    onTestFinished(async () => {
      await slowly.close()
      await provider.stop()
    })
    const submit = async (account: string) => {
      const { api_key: key } = await provider.createKey({ account })
      const body = { input: { prompt: 'x' }, webhook_url: `${slowly.origin}/hook` }
      for (let i = 0; i < (account === 'greedy' ? 40 : 1); i += 1)
        await provider.call('POST', '/v1/models/aurora-image', { key, body })
    }
    await submit('greedy')
    await eventually(() => slowly.caught.length >= 8)
    const rows = await provider.database.sql`select id from provider.deliveries`
    greedyIds = new Set(rows.map(({ id }) => id))
    await submit('modest')
    await eventually(
      () => slowly.caught.some(({ headers }) => !greedyIds?.has(headers['x-service-webhook-id'])),
      tickMs + 2500,
    )
  })
})
