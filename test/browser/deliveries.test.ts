import { randomUUID } from 'node:crypto'
import type { Browser } from 'playwright-core'
import { beforeAll, describe, expect, it } from 'vitest'
import { deliverAndSettle } from '../receiver/api/calls.ts'
import { sharedBrowser } from '../support/browser.ts'
import type { TestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { imageResult, json, type ProviderStand } from '../support/provider-stand.ts'
import { sandboxKey, type TestReceiver } from '../support/receiver.ts'
import { deliver, failed, nowSeconds, okAudio, okImage } from '../support/webhooks.ts'
import { withReceiver } from '../support/with-receiver.ts'
import { expectAccessible, expectGoodLooks, openPage, shoot, type Look } from './support/console.ts'
import { readPage } from './support/read-page.ts'

let browser: Browser
let database: TestDatabase
let stand: ProviderStand
let receiver: TestReceiver
/** Of the deliveries that every test finds: one that landed, one that failed, one parked, one with flags. */
const known = { landed: '', failed: '', parked: '', image: okImage(), error: failed() }

beforeAll(async () => {
  browser = await sharedBrowser()
  const its = await withReceiver({ stand: true })
  ;({ database, receiver, stand } = its)
  stand.answer((id, _req, res) => json(res, 200, imageResult(id, 2)))
  const to = { receiver, database }
  known.landed = await deliverAndSettle(to, known.image, { webhookId: 'wh_landed', t: nowSeconds() - 7 })
  known.failed = await deliverAndSettle(to, known.error, { webhookId: 'wh_failed', secret: sandboxKey.signing_secret })
  known.parked = await deliverAndSettle(
    to,
    { requestId: '', body: Buffer.from('not json at all') },
    { webhookId: 'wh_parked' },
  )
  await deliverAndSettle(to, okAudio(known.error.requestId), {
    webhookId: 'wh_contradicts',
    secret: sandboxKey.signing_secret,
  })
  await deliver(receiver.webhookUrl, known.image.body, { webhookId: 'wh_landed' })
  await deliver(receiver.webhookUrl, okImage().body, { webhookId: 'wh_forged', secret: 'whsec_forged' })
  await deliver(receiver.webhookUrl, okImage().body, { webhookId: 'wh_old', t: nowSeconds() - 301 })
  await logged(7)
  return its.stop
})

async function logged(count: number): Promise<void> {
  await eventually(
    async () => Number((await database.sql`select count(*) as n from mediadock.arrivals`)[0]?.['n']) >= count,
  )
}

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

  it('explains an empty list', async () => {
    const page = await open('deliveries?webhook_id=wh_forged')
    await page.getByText('No delivery matches these filters.').waitFor()
    await page.getByRole('link', { name: 'arrivals', exact: true }).click()
    await page.locator('[data-row]').getByText('No secret matches').waitFor()
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

  it('pages through every row once while new rows arrive', async () => {
    const page = await open('deliveries?limit=2')
    const seen = await shownIds(page)
    await deliverAndSettle({ receiver, database }, failed(), { webhookId: `wh_new_${randomUUID()}` })
    await page.getByRole('link', { name: 'Older →' }).click()
    await page.waitForURL(/cursor=/)
    seen.push(...(await shownIds(page)))
    expect(seen).toHaveLength(4)
    expect(new Set(seen).size).toBe(4)
    await page.getByRole('link', { name: '← Newest' }).click()
    expect(await shownIds(page)).not.toEqual(seen.slice(0, 2))
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

  it('counts the matching deliveries first, and replays all of them', async () => {
    const page = await open('deliveries?key_name=live')
    const [row] = await database.sql`select count(*)::int as n from mediadock.deliveries where key_name = 'live'`
    await page.getByRole('link', { name: 'Replay all that match…' }).click()
    await page.getByRole('heading', { name: `Replay ${row?.['n']} deliveries?` }).waitFor()
    await page.getByRole('button', { name: `Replay ${row?.['n']}` }).click()
    await page.getByText(`${row?.['n'] - 1} replayed, 1 parked again for the reasons below.`).waitFor()
    await page.getByText('not_json: not a notification').waitFor()
    expect(await page.locator('[hx-get]').count()).toBe(0)
  })

  it('shows how many still wait, until all have ended', async () => {
    const id = randomUUID()
    await database.sql`insert into mediadock.replays (id, started_at, actor, filters, count, requeued)
      values (${id}, now(), 'tester', '{"key_name":"live"}', 3, 2)`
    await database.sql`insert into mediadock.attempts (delivery_id, attempted_at, outcome, replay_id)
      values (${known.landed}, now(), 'landed', ${id})`
    await database.sql`insert into mediadock.inbox (delivery_id, due_at, replay_id)
      values (${known.failed}, now() + interval '1 hour', ${id})`
    const page = await open(`deliveries/replays/${id}`)
    await page.getByText('Replaying…').waitFor()
    expect(await page.getByRole('region', { name: 'Progress' }).innerText()).toMatch(/2 of 3\s+Still waiting\s+1/)
    await page.getByText(/^The others were waiting in the inbox already/).waitFor()
    await expectAccessible(page)
    await database.sql`delete from mediadock.inbox where replay_id = ${id}`
    await page.getByText('2 replayed, 1 changed something.').waitFor()
    await database.sql`delete from mediadock.attempts where replay_id = ${id}`
  })

  it('refuses to replay everything, and an unknown replay', async () => {
    const all = await readPage(`${receiver.internalUrl}deliveries/replay`)
    expect(all.said.alert).toMatch(/needs a selection or a filter/)
    const lost = await readPage(`${receiver.internalUrl}deliveries/replays/${randomUUID()}`)
    expect(lost.said.alert).toMatch(/There is no such replay/)
  })
})

describe('arrivals', () => {
  it('shows those that were refused, with the cause', async () => {
    const page = await open('deliveries?view=arrivals&outcome=refused')
    await expect
      .poll(() => page.locator('[data-row] td:nth-child(3)').allInnerTexts())
      .toEqual(['Signed too long ago', 'No secret matches'])
    await page.getByRole('link', { name: 'wh_forged', exact: true }).click()
    await page.waitForURL('**/deliveries?view=arrivals&webhook_id=wh_forged')
    await shoot(page, 'arrivals-refused')
  })

  it('opens the delivery of the marked arrival on Enter', async () => {
    const page = await open('deliveries?view=arrivals&webhook_id=wh_landed')
    await page.keyboard.press('j')
    await page.keyboard.press('Enter')
    await page.waitForURL(`**/deliveries/${known.landed}`)
  })

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

  it('tails at once if the link says so, even with an empty table', async () => {
    const page = await open('deliveries?view=arrivals&tail=on&webhook_id=wh_first_of_all')
    await page.getByText('Tail is on').waitFor()
    await page.getByText('No arrival matches').waitFor()
    await deliver(receiver.webhookUrl, failed().body, { webhookId: 'wh_first_of_all' })
    await page.locator('tbody').getByText('wh_first_of_all').waitFor()
    expect(await page.getByText('No arrival matches').count()).toBe(0)
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

describe('how it looks', () => {
  it('has no serious axe finding in either colour scheme, and fits a phone', async () => {
    for (const [name, path] of [
      ['deliveries', 'deliveries?since=2020-01-01'],
      ['arrivals', 'deliveries?view=arrivals'],
    ] as const) {
      const page = await open(path)
      await page.keyboard.press('j')
      await expectGoodLooks(page, name)
    }
  })
})
