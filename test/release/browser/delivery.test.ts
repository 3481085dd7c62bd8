import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import type { Browser } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { sha256Hex } from '../../../src/receiver/domain/delivery.ts'
import { expectGoodLooks, expectNoOverflow, openPage, shoot, type Look } from '../../browser/support/console.ts'
import { readPage } from '../../browser/support/read-page.ts'
import { long } from '../../chaos/length.ts'
import { deliverAndSettle } from '../../receiver/api/calls.ts'
import { sharedBrowser } from '../../support/browser.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { imageResult, json, type ProviderStand } from '../../support/provider-stand.ts'
import { liveKey, type TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, headersFor, nowSeconds, okAudio, okImage, type Sample } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let browser: Browser
let database: TestDatabase
let stand: ProviderStand
let receiver: TestReceiver

beforeAll(async () => {
  browser = await sharedBrowser()
  const its = await withReceiver({ stand: true })
  ;({ database, receiver, stand } = its)
  stand.answer((id, _req, res) => json(res, 200, imageResult(id, 2)))
  return its.stop
})

const at = (path: string) => `${receiver.internalUrl}${path}`
const open = (path: string, look: Look = {}) => openPage(browser, at(path), look)
const settle = (sample: Sample, webhookId: string = randomUUID()) =>
  deliverAndSettle({ receiver, database }, sample, { webhookId })
const raw = (text: string | Buffer): Sample => ({ requestId: '', body: Buffer.from(text) })

describe('the page of a delivery', () => {
  it('shows the delivery, its verification, attempts and arrivals, and the present state of its request', async () => {
    const sample = okImage()
    const t = nowSeconds() - 42
    const id = await deliverAndSettle({ receiver, database }, sample, {
      webhookId: 'wh_page',
      t,
      headers: { 'x-extra': 'kept', authorization: 'Bearer of-the-sender' },
    })
    await receiver.deps.background.reconcileNow()
    const signature = headersFor(sample.body, { t })['x-service-signature'].slice(-20)
    const page = await open(`deliveries/${id}`)
    const text = await page.locator('main').innerText()
    expect(text).toContain('Processed: its result was written. Nothing to do.')
    expect(text).toContain('wh_page')
    expect(text).toContain(sha256Hex(sample.body))
    expect(text).toContain(`t=${t}`)
    expect(text).toMatch(/Our clock minus that\s+4[23]\ss, of at most ±300\ss/)
    expect(text).toContain('of the key live. Its environment is live.')
    expect(await page.getByRole('region', { name: 'Attempts' }).innerText()).toMatch(/landed/)
    expect(await page.getByRole('region', { name: 'Arrivals' }).innerText()).toMatch(/accepted/)
    const request = page.getByRole('region', { name: 'Its request' })
    expect(await request.innerText()).toMatch(/Status\s+COMPLETED.*Media\s+2/s)
    expect(await request.locator(`a[href="https://media.test/${sample.requestId}-0.png"]`).count()).toBe(1)
    expect(text).toContain('x-extra')
    const markup = await page.content()
    for (const secret of [liveKey.signing_secret, liveKey.api_key, signature, 'of-the-sender'])
      expect(markup).not.toContain(secret)
    await shoot(page, 'delivery')
  })

  it('shows the bytes as text, formatted and in hex, and offers them as a download', async () => {
    const sample = okImage()
    const page = await open(`deliveries/${await settle(sample)}`)
    const body = page.locator('pre.body')
    expect(await body.innerText()).toBe(sample.body.toString())
    await page.getByRole('link', { name: 'Formatted' }).click()
    await page.waitForURL(/body=formatted/)
    expect(JSON.parse(await body.innerText())).toEqual(JSON.parse(sample.body.toString()))
    expect((await body.innerText()).split('\n').length).toBeGreaterThan(5)
    await page.getByRole('link', { name: 'Hex' }).click()
    await page.waitForURL(/body=hex/)
    expect((await body.innerText()).split('\n')[0]).toBe(
      '000000  7b 22 72 65 71 75 65 73  74 5f 69 64 22 3a 22 ' +
        `${sample.body.subarray(15, 16).toString('hex')}  {"request_id":"${sample.requestId[0]}`,
    )
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: /^Download the bytes/ }).click(),
    ])
    expect(await readFile(await download.path())).toEqual(sample.body)
  })

  it('explains what to do with a parked delivery that a replay cannot help', async () => {
    const page = await open(`deliveries/${await settle(raw('not json'))}`)
    expect(await page.locator('.lead').innerText()).toMatch(/^Parked: /)
    await page.getByText('It was parked on arrival and never processed.').waitFor()
    await page.getByText('The delivery names no request, so it changed none.').waitFor()
    await page.keyboard.press('r')
    await page.waitForURL(/\/deliveries\/replay\?ids=/)
    await page.getByText('nothing would change').waitFor()
    await page.getByRole('link', { name: 'Back' }).click()
    await page.waitForURL(/\/deliveries\/[0-9a-f-]{36}$/)
  })

  it('shows each failed attempt with its error and the time of the next one', async () => {
    const id = await settle(failed())
    await database.sql`insert into mediadock.inbox (delivery_id, due_at, failures) values (${id}, now() + interval '5 minutes', 3)`
    await database.sql`insert into mediadock.attempts (delivery_id, attempted_at, outcome, detail) values (${id}, now(), 'retry', 'landing_failed: value out of range')`
    const { main } = await readPage(at(`deliveries/${id}`))
    expect(main).toMatch(/It failed 3 of at most 5 times/)
    expect(main).toContain('landing_failed: value out of range')
    await database.sql`delete from mediadock.inbox where delivery_id = ${id}`
  })

  it('previews a replay with the key r, and shows the changes', async () => {
    const sample = failed()
    const id = await settle(sample)
    await database.sql`delete from mediadock.requests where request_id = ${sample.requestId}`
    const page = await open(`deliveries/${id}`)
    await page.getByText('No request has this id').waitFor()
    await page.keyboard.press('r')
    await page.getByText('1 would change what is stored').waitFor()
    expect(await database.sql`select from mediadock.requests where request_id = ${sample.requestId}`).toHaveLength(0)
    await page.getByRole('button', { name: 'Replay it' }).click()
    await page.getByText('1 replayed, 1 changed something.').waitFor()
    expect(await database.sql`select from mediadock.requests where request_id = ${sample.requestId}`).toHaveLength(1)
    await page.getByRole('link', { name: 'To the delivery' }).click()
    expect(await page.getByRole('region', { name: 'Attempts' }).innerText()).toMatch(/replay/)
  })

  it('answers 404 with an explanation for an unknown delivery', async () => {
    for (const id of [randomUUID(), 'nonsense']) {
      const { status, main } = await readPage(at(`deliveries/${id}`))
      expect(status).toBe(404)
      expect(main).toMatch(/<h1[^>]*>Not found<\/h1>/)
      expect((await fetch(at(`deliveries/${id}/body`))).status).toBe(404)
    }
  })
})

const markup = '<img src=x onerror="document.title=\'owned\'"><script>document.title="owned"</script>'

describe('hostile payloads', () => {
  it('stay text, on the list and on the page', async () => {
    const requestId = randomUUID()
    const payload = { model: markup, output: { audio: { url: 'javascript:document.title="owned"' } }, cost: 1 }
    const id = await settle(
      { requestId, body: Buffer.from(JSON.stringify({ request_id: requestId, status: 'OK', payload })) },
      markup.replaceAll(' ', ''),
    )
    const page = await open(`deliveries/${id}`)
    for (const path of [
      `deliveries/${id}?body=formatted`,
      `deliveries?request_id=${requestId}`,
      'deliveries?view=arrivals',
      `deliveries/replay?ids=${id}`,
      `deliveries?webhook_id=${encodeURIComponent(markup)}`,
      `deliveries/${id}`,
    ]) {
      await page.goto(at(path))
      expect(await page.title()).not.toBe('owned')
      expect(await page.locator('main img, main script, [onerror]').count()).toBe(0)
      expect(await page.locator('[src^="javascript:"], [href^="javascript:"]').count()).toBe(0)
    }
    await page.getByText('no link: it is not https').waitFor()
    await page.getByText(markup.slice(0, 80)).first().waitFor()
  })

  it('cannot reverse or hide text in a line', async () => {
    const requestId = randomUUID()
    const message = 'see \u202Egnp.exe\u202C \u0007\u200B end'
    const id = await settle({
      requestId,
      body: Buffer.from(
        JSON.stringify({
          request_id: requestId,
          status: 'ERROR',
          error: { code: 'GENERATION_FAILED', message },
        }).replace('\\u0007', '\\u0007'),
      ),
    })
    const page = await open(`deliveries/${id}`)
    expect(await page.locator('pre.body .hidden-char').allInnerTexts()).toEqual(['U+202E', 'U+202C', 'U+200B'])
    expect(await page.locator('pre.body').innerText()).not.toMatch(/[\u202E\u200B]/)
    // In our own lines too, where it is also isolated from what stands around it.
    expect(await page.locator('dd bdi', { hasText: 'gnp.exe' }).innerText()).toBe(
      'see U+202Egnp.exeU+202C U+0007U+200B end',
    )
    await shoot(page, 'delivery-hidden')
  })

  it('are cut at 64 KiB on the page, and complete in the download', async () => {
    const requestId = randomUUID()
    const start = JSON.stringify({
      request_id: requestId,
      status: 'ERROR',
      error: { code: 'GENERATION_FAILED', message: '' },
    })
    const body = Buffer.from(start.replace('"message":""', `"message":"${'w'.repeat(1_000_000)}"`))
    const id = await settle({ requestId, body })
    const page = await open('deliveries?limit=1')
    for (const view of ['text', 'formatted', 'hex']) {
      await page.goto(at(`deliveries/${id}?body=${view}`))
      await page.getByText('The first 64.0\u00a0KiB of 976').waitFor()
      expect((await page.locator('pre.body').innerText()).length).toBeLessThan(400_000)
      expect((await page.content()).length).toBeLessThan(500_000)
      await expectNoOverflow(page)
    }
    const answer = await fetch(`${receiver.internalUrl}deliveries/${id}/body`)
    expect(answer.headers.get('content-type')).toBe('application/octet-stream')
    expect(answer.headers.get('content-disposition')).toBe(`attachment; filename="${id}.bin"`)
    expect(answer.headers.get('x-content-type-options')).toBe('nosniff')
    expect(Buffer.from(await answer.arrayBuffer()).equals(body)).toBe(true)
  })

  it('that are not text are shown as far as they are readable', async () => {
    const id = await settle(raw(Buffer.from([0xff, 0xfe, 0x00, 0x41])))
    const page = await open(`deliveries/${id}`)
    expect(await page.locator('pre.body').innerText()).toBe('U+FFFDU+FFFDU+0000A')
    await page.getByRole('link', { name: 'Hex' }).click()
    expect(await page.locator('pre.body').innerText()).toMatch(/^000000 {2}ff fe 00 41 .* \.\.\.A$/)
    const empty = await open(`deliveries/${await settle(raw(''))}`)
    await empty.getByText('The body is empty.').waitFor()
  })
})

describe('how it looks', () => {
  it('has no serious axe finding in either colour scheme, and fits a phone', async () => {
    const sample = okImage()
    const id = await settle(sample, 'wh_looks')
    await settle(okAudio(sample.requestId))
    await deliver(receiver.webhookUrl, sample.body, { webhookId: 'wh_looks', secret: 'whsec_forged' })
    await eventually(
      async () => (await database.sql`select from mediadock.arrivals where delivery_id = ${id}`).length === 2,
    )
    // Both are the same elements. Long: each.
    for (const view of long ? ['text', 'hex'] : ['hex']) {
      await expectGoodLooks(await open(`deliveries/${id}?body=${view}`), `delivery-${view}`)
    }
  })
})
