import { randomUUID } from 'node:crypto'
import type { Browser } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { deliverAndSettle } from '../receiver/api/calls.ts'
import { sharedBrowser } from '../support/browser.ts'
import { eventually } from '../support/eventually.ts'
import { sandboxKey } from '../support/receiver.ts'
import { deliver, failed } from '../support/webhooks.ts'
import { expectAccessible, openPage, shoot, type Look } from './support/console.ts'
import { startDeliveries, type Deliveries } from './support/deliveries.ts'
import { readPage } from './support/read-page.ts'

let browser: Browser
let database: Deliveries['database']
let receiver: Deliveries['receiver']
let known: Deliveries['known']

beforeAll(async () => {
  browser = await sharedBrowser()
  const its = await startDeliveries()
  ;({ database, receiver, known } = its)
  return its.stop
})

const open = (path: string, look: Look = {}) => openPage(browser, `${receiver.internalUrl}${path}`, look)
const shownIds = (page: Awaited<ReturnType<typeof open>>) =>
  page.locator('[data-row]').evaluateAll((rows) => rows.map((row) => row.getAttribute('data-row')))

describe('the list of deliveries', () => {
  it('shows each delivery with its outcome', async () => {
    const page = await open('deliveries')
    const heads = await page.locator('thead th').allInnerTexts()
    expect(heads.slice(1)).toEqual(['Received', 'Outcome', 'Cause', 'Webhook id', 'Request', 'Key'])
    const row = page.locator(`[data-row="${known.landed}"]`)
    expect((await row.locator('td').allInnerTexts()).slice(2)).toEqual([
      'landed',
      '—',
      'wh_landed',
      known.image.requestId.slice(0, 8),
      'live',
    ])
    expect(await page.locator(`[data-row="${known.parked}"]`).innerText()).toMatch(/parked\s+Not JSON/)
    expect(await page.locator('tbody').innerText()).not.toContain('wh_forged')
    await shoot(page, 'deliveries')
  })

  it.each([
    ['state=parked', ['wh_parked']],
    ['outcome=landed', ['wh_failed', 'wh_landed']],
    ['reason=not_json', ['wh_parked']],
    ['key_name=sandbox', ['wh_contradicts', 'wh_failed']],
    ['model=aurora-image', ['wh_landed']],
    ['webhook_id=wh_failed', ['wh_failed']],
    ['since=2020-01-01', ['wh_contradicts', 'wh_parked', 'wh_failed', 'wh_landed']],
    ['until=2020-01-01', []],
  ])('filters by %s', async (query, webhookIds) => {
    const { rows, table } = await readPage(`${receiver.internalUrl}deliveries?${query}`)
    expect(rows).toHaveLength(webhookIds.length)
    expect([...new Set(table.match(/\bwh_\w+/g))]).toEqual(webhookIds)
  })

  it('keeps the chosen filters in the address, without empty fields', async () => {
    const page = await open('deliveries')
    await page.getByRole('combobox', { name: 'State' }).selectOption('parked')
    await page.waitForURL('**/deliveries?state=parked')
    await page.getByRole('link', { name: '24 h' }).click()
    await page.waitForURL(/since=\d{4}-/)
    await page.keyboard.press('j')
    await page.waitForURL(/open=/)
    const pasted = await openPage(browser, page.url())
    expect(await shownIds(pasted)).toEqual([known.parked])
    expect(await pasted.locator('[data-row].marked').getAttribute('data-row')).toBe(known.parked)
    expect(await pasted.getByRole('combobox', { name: 'State' }).inputValue()).toBe('parked')
    await pasted.getByRole('link', { name: /^Remove State/ }).click()
    await pasted.waitForURL((url) => !url.searchParams.has('state') && url.searchParams.has('since'))
  })

  it('explains a wrong filter and keeps the form', async () => {
    const { status, said, main } = await readPage(`${receiver.internalUrl}deliveries?since=yesterday&key_name=live`)
    expect(status).toBe(400)
    expect(said.alert).toMatch(/The filter since: must be a duration like 15m, or a time/)
    expect(main).toContain('value="yesterday"')
    expect(main).toMatch(/<option value="live" selected/)
    const unknown = await readPage(`${receiver.internalUrl}deliveries?colour=red`)
    expect(unknown.said.alert).toMatch(/colour: is not a parameter/)
  })

  it('navigates with j, k and Enter, selects with x, and focuses the search with /', async () => {
    const page = await open('deliveries')
    const rows = await shownIds(page)
    const marked = () => page.locator('[data-row].marked').getAttribute('data-row')
    for (const [key, at] of [
      ['j', 0],
      ['j', 1],
      ['k', 0],
      ['k', 0],
      ['j', 1],
    ] as const) {
      await page.keyboard.press(key)
      expect(await marked()).toBe(rows[at])
    }
    await page.keyboard.press('x')
    await page.getByText('Replay selected (1)').waitFor()
    await page.keyboard.press('/')
    await page.keyboard.type('wh_x j')
    expect(await page.getByRole('searchbox', { name: 'Webhook id' }).inputValue()).toBe('wh_x j')
    await page.keyboard.press('Escape')
    await page.keyboard.press('Enter')
    await page.waitForURL(`**/deliveries/${rows[1]}`)
  })

  it('shows the details of the marked row beside the list on a wide screen', async () => {
    const page = await open('deliveries', { viewport: { width: 1500, height: 900 } })
    const drawer = page.getByRole('region', { name: 'Details' })
    const link = (id: string) => page.locator(`[data-row="${id}"] a`).first()
    await link(known.landed).click()
    await drawer.getByRole('heading', { level: 1, name: `Delivery ${known.landed.slice(0, 8)}` }).waitFor()
    expect(page.url()).toBe(`${receiver.internalUrl}deliveries?open=${known.landed}`)
    expect(await drawer.evaluate((element) => element.matches(':focus'))).toBe(true)
    await drawer.getByRole('link', { name: 'Hex' }).click()
    await drawer.getByText('000010  ').first().waitFor()
    await expectAccessible(page)
    await shoot(page, 'drawer')
    await page.keyboard.press('k')
    const marked = (await page.locator('.marked').getAttribute('data-row')) ?? ''
    expect(marked).not.toBe(known.landed)
    await drawer.getByRole('heading', { level: 1, name: `Delivery ${marked.slice(0, 8)}` }).waitFor()
    expect(await drawer.getByRole('link', { name: 'Open as a page' }).getAttribute('href')).toBe(
      `${receiver.internalUrl}deliveries/${marked}`,
    )
    await page.keyboard.press('Escape')
    expect(await drawer.count()).toBe(0)
    expect(await link(marked).evaluate((element) => element.matches(':focus'))).toBe(true)
    // Left to the browser, which opens a tab.
    await page.evaluate(`addEventListener('click', (event) => {
      if (!event.ctrlKey) return
      globalThis.isTaken = event.defaultPrevented
      event.preventDefault()
    })`)
    await link(known.landed).click({ modifiers: ['Control'] })
    expect(await page.evaluate('isTaken')).toBe(false)
    expect(await drawer.count()).toBe(0)
    await page
      .locator(`[data-row="${known.failed}"]`)
      .getByRole('link', { name: known.error.requestId.slice(0, 8) })
      .click()
    await drawer.getByRole('heading', { level: 1, name: `Request ${known.error.requestId.slice(0, 8)}` }).waitFor()
    await page.setViewportSize({ width: 1280, height: 800 })
    // The page hears of its new width a moment later.
    await drawer.waitFor({ state: 'detached' })
    await link(known.landed).click()
    await page.waitForURL(`**/deliveries/${known.landed}`)
  })

  it('shows the keyboard shortcuts on ? and copies the link on c', async () => {
    const page = await open('deliveries?state=parked', { permissions: ['clipboard-read', 'clipboard-write'] })
    await page.keyboard.press('?')
    await page.getByRole('dialog').getByText('Mark the next or the previous row').waitFor()
    await page.keyboard.press('Escape')
    await page.keyboard.press('c')
    await page.getByText('The link is copied.').waitFor()
    expect(await page.evaluate('navigator.clipboard.readText()')).toBe(page.url())
  })
})

describe('replaying many', () => {
  it('previews the changes of a selection, applies them on confirmation, and reports the result', async () => {
    const sample = failed()
    await database.sql`insert into mediadock.requests (request_id, key_name) values (${sample.requestId}, 'live')`
    const id = await deliverAndSettle({ receiver, database }, sample, {
      webhookId: randomUUID(),
      secret: sandboxKey.signing_secret,
    })
    await database.sql`update mediadock.requests set key_name = 'sandbox' where request_id = ${sample.requestId}`
    const page = await open('deliveries?reason=key_mismatch')
    await page.keyboard.press('j')
    await page.keyboard.press('r')
    await page.waitForURL(/\/deliveries\/replay\?id=/)
    await page.getByText('1 would change what is stored').waitFor()
    expect(await page.locator('table.diff').first().innerText()).toMatch(/status\s+IN_QUEUE\s+FAILED/)
    expect(
      (await database.sql`select status from mediadock.requests where request_id = ${sample.requestId}`)[0],
    ).toEqual({
      status: 'IN_QUEUE',
    })
    await shoot(page, 'replay-preview')
    await expectAccessible(page)
    await page.keyboard.press('r')
    await page.getByText('1 replayed, 1 changed something.').waitFor()
    await shoot(page, 'replay-result')
    expect(
      (await database.sql`select status from mediadock.requests where request_id = ${sample.requestId}`)[0],
    ).toEqual({
      status: 'FAILED',
    })
    const [audit] = await eventually(async () => {
      const rows = await database.sql`select via, action, target, detail from mediadock.audit order by id desc limit 1`
      return rows.length === 1 && rows
    })
    expect(audit).toEqual({
      via: 'console',
      action: 'replay',
      target: `ids=${id}`,
      detail: { id: page.url().split('/').at(-1), count: 1, requeued: 1 },
    })
  })

  it('refuses to replay everything, and an unknown replay', async () => {
    const all = await readPage(`${receiver.internalUrl}deliveries/replay`)
    expect(all.said.alert).toMatch(/needs a selection or a filter/)
    const lost = await readPage(`${receiver.internalUrl}deliveries/replays/${randomUUID()}`)
    expect(lost.said.alert).toMatch(/There is no such replay/)
  })
})

describe('arrivals', () => {
  it('tails on t, only matching arrivals, and stops', async () => {
    const page = await open('deliveries?view=arrivals&outcome=refused')
    const before = (await shownIds(page)).length
    await page.keyboard.press('t')
    await page.getByText('Tail is on').waitFor()
    expect(new URL(page.url()).searchParams.get('tail')).toBe('on')
    await deliver(receiver.webhookUrl, failed().body, { webhookId: 'wh_tail_good' })
    await deliver(receiver.webhookUrl, failed().body, { webhookId: 'wh_tail_bad', secret: 'whsec_forged' })
    await page.getByText('wh_tail_bad').waitFor()
    expect((await shownIds(page)).length).toBe(before + 1)
    expect(await page.locator('tbody').innerText()).not.toContain('wh_tail_good')
    await page.keyboard.press('t')
    await page.getByText('Tail is off.').waitFor()
    expect(new URL(page.url()).searchParams.has('tail')).toBe(false)
  })
})

describe('trouble', () => {
  it('explains that a query took too long, and keeps the form to narrow it', async () => {
    const [locked, seen] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const holding = database.sql.begin(async (sql) => {
      await sql`lock table mediadock.attempts in access exclusive mode`
      locked.resolve()
      await seen.promise
    })
    await locked.promise
    const { status, said, main } = await readPage(`${receiver.internalUrl}deliveries?key_name=live`)
    seen.resolve()
    await holding
    expect(status).toBe(503)
    expect(said.alert).toMatch(/took longer than 5 s and was stopped: narrow it/)
    expect(main).toMatch(/<option value="live" selected/)
  })

  it('keeps mark, selection and order of rows while new rows arrive', async () => {
    const page = await open('deliveries?view=arrivals&since=2020-01-01&limit=3')
    await page.keyboard.press('t')
    await page.getByText('Tail is on').waitFor()
    await page.keyboard.press('j')
    const marked = await page.locator('[data-row].marked').getAttribute('data-row')
    for (let n = 0; n < 8; n += 1) await deliver(receiver.webhookUrl, failed().body, { webhookId: `wh_stream_${n}` })
    await page.getByText('wh_stream_7').waitFor()
    expect(await page.locator('[data-row].marked').getAttribute('data-row')).toBe(marked)
    const times = await page
      .locator('[data-row] td:first-child time')
      .evaluateAll((all) => all.map((time) => time.getAttribute('datetime') ?? ''))
    expect(times).toEqual(times.toSorted((a, b) => (a < b ? 1 : -1)))
  })
})
