import { once } from 'node:events'
import http from 'node:http'
import { beforeAll, describe, expect, it } from 'vitest'
import { type TestDatabase, usualServers } from '../../support/database.ts'
import { imageResult, json, type ProviderStand } from '../../support/provider-stand.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { failed, okImage } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'
import { deliverAndSettle } from '../api/calls.ts'

const browser = {
  accept: 'text/html',
  'sec-fetch-site': 'same-origin',
  'sec-fetch-mode': 'navigate',
  'sec-fetch-dest': 'document',
}

describe.each(usualServers)('the preview of a replay, on the %s server', (server) => {
  let database: TestDatabase
  let stand: ProviderStand
  let receiver: TestReceiver
  const image = okImage()
  let imageId = ''

  beforeAll(async () => {
    const its = await withReceiver({ server, stand: true })
    ;({ database, receiver, stand } = its)
    stand.answer((_id, _req, res) => json(res, 503, {}))
    imageId = await deliverAndSettle({ receiver, database }, image, { webhookId: 'wh_image' })
    await deliverAndSettle({ receiver, database }, failed(), { webhookId: 'wh_failed' })
    stand.answer((id, _req, res) => json(res, 200, imageResult(id, 2)))
    stand.calls.length = 0
    return its.stop
  })

  const url = (path: string) => `${receiver.internalUrl}${path}`
  const preview = (fields: Record<string, string>, headers: Record<string, string>) =>
    fetch(url('deliveries/replay/preview'), { method: 'POST', headers, body: new URLSearchParams(fields) })
  const budgets = () => database.sql`select * from mediadock.call_budgets order by 1`

  it('makes no call, uses no quota and writes no row', async () => {
    const before = await budgets()
    for (let view = 0; view < 5; view += 1) {
      const page = await fetch(url('deliveries/replay?key_name=live'), { headers: browser })
      expect(page.status).toBe(200)
      expect(await page.text()).toContain('Replay 2 deliveries?')
    }
    expect(stand.calls).toEqual([])
    expect(await budgets()).toEqual(before)
  })

  it('waits for no lock of landing', async () => {
    const held = Promise.withResolvers<void>()
    const locked = Promise.withResolvers<void>()
    const holding = database.sql.begin(async (sql) => {
      await sql`select from mediadock.requests for update`
      await sql`select from mediadock.deliveries for update`
      locked.resolve()
      await held.promise
    })
    await locked.promise
    for (const path of [
      'deliveries/replay?key_name=live',
      `deliveries/replay?ids=${imageId}`,
      `deliveries/${imageId}`,
      `requests/${image.requestId}`,
      'parked',
      '',
      'api/stats',
    ]) {
      expect([path, (await fetch(url(path), { headers: browser, signal: AbortSignal.timeout(4000) })).status]).toEqual([
        path,
        200,
      ])
    }
    held.resolve()
    await holding
  })

  it('shows the changes on demand, without polling the provider', async () => {
    await database.sql`delete from mediadock.requests where request_id = ${image.requestId}`
    const page = await preview({ ids: imageId }, browser)
    const text = await page.text()
    expect(page.status).toBe(200)
    expect(text).toContain('1 would change what is stored')
    expect(text).toContain('new → COMPLETED')
    expect(await database.sql`select from mediadock.requests where request_id = ${image.requestId}`).toHaveLength(0)
    expect(stand.calls).toEqual([])
    const part = await preview({ ids: imageId }, { ...browser, 'hx-request': 'true' })
    expect(await part.text()).not.toContain('<html')
  })

  it('runs by itself only for a visitor from a console page', async () => {
    const trigger = async (site: string | undefined) =>
      (
        await (
          await fetch(url(`deliveries/replay?ids=${imageId}`), {
            headers: { ...browser, 'sec-fetch-site': site ?? 'none' },
          })
        ).text()
      ).includes('hx-trigger="load')
    expect(await trigger('same-origin')).toBe(true)
    expect(await trigger('none')).toBe(true)
    expect(await trigger('cross-site')).toBe(false)
    expect(await trigger('same-site')).toBe(false)
  })

  it.each([
    ['another site', { 'sec-fetch-site': 'cross-site' }],
    ['another origin', { origin: 'https://evil.example' }],
    ['a sandboxed frame', { origin: 'null' }],
  ])('is not done for %s', async (_what, headers) =>
    expect((await preview({ ids: imageId }, { accept: 'text/html', ...headers })).status).toBe(403),
  )

  it.each([
    ['a picture', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors', 'sec-fetch-dest': 'image' }],
    ['a script', { 'sec-fetch-site': 'same-site', 'sec-fetch-mode': 'no-cors', 'sec-fetch-dest': 'script' }],
    ['a fetch', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'cors', 'sec-fetch-dest': 'empty' }],
    ['a frame', { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'iframe' }],
  ])('reads nothing for %s of another site', async (_what, headers) => {
    for (const path of [
      'deliveries/replay?key_name=live',
      'deliveries?webhook_id=abcd',
      'api/deliveries',
      'api/results/x?wait=60',
      'metrics',
      '',
    ]) {
      expect([path, (await fetch(url(path), { headers })).status]).toEqual([path, 403])
    }
  })

  it('follows a link of another site', async () => {
    // fetch() names a mode of its own.
    const request = http.get(url(`deliveries/${imageId}`), {
      headers: { ...browser, 'sec-fetch-site': 'cross-site' },
      agent: false,
    })
    const [response] = await once(request, 'response')
    response.resume()
    expect(response.statusCode).toBe(200)
  })
})
