import { randomUUID } from 'node:crypto'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { expectGoodLooks, openPage, shoot, type Look } from '../../browser/support/console.ts'
import { readPage } from '../../browser/support/read-page.ts'
import { completed, running, startWorld, track, type World } from '../../browser/support/request-world.ts'
import { call, deliverAndSettle } from '../../receiver/api/calls.ts'
import { sharedBrowser } from '../../support/browser.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { sandboxKey, type TestReceiver } from '../../support/receiver.ts'
import { failed, okAudio } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let browser: Browser
let database: TestDatabase
let world: World
let receiver: TestReceiver
const nasty = '<img src=x onerror="document.title=\'owned\'">'
/** `overdue` was tracked an hour ago and runs; `lost` is not known; `hostile` carries what a page must not run. */
const ids = {
  pictures: randomUUID(),
  failed: randomUUID(),
  doubted: randomUUID(),
  overdue: randomUUID(),
  lost: randomUUID(),
  partly: randomUUID(),
  hostile: randomUUID(),
}

beforeAll(async () => {
  browser = await sharedBrowser()
  world = await startWorld()
  const its = await withReceiver({ providerUrl: world.url })
  ;({ database, receiver } = its)
  const to = { receiver, database }
  await track(database, { id: ids.overdue, ago: 3600, model: 'vela' })
  await track(database, { id: ids.lost, ago: 5400, model: 'vela', keyName: 'sandbox' })
  world.says(ids.overdue, running(ids.overdue))
  for (const id of [ids.overdue, ids.lost]) await call(receiver, `POST /api/requests/${id}/reconcile`)
  await deliverAndSettle(to, failed(ids.failed), { webhookId: 'wh_failed' })
  await deliverAndSettle(to, failed(ids.doubted), { webhookId: 'wh_failed_too', secret: sandboxKey.signing_secret })
  await deliverAndSettle(to, okAudio(ids.doubted), { webhookId: 'wh_contradicts', secret: sandboxKey.signing_secret })
  await deliverAndSettle(to, picture(ids.partly), { webhookId: 'wh_partly' })
  await deliverAndSettle(to, hostile(ids.hostile), { webhookId: 'wh_hostile' })
  world.says(
    ids.pictures,
    completed(ids.pictures, {
      images: [0, 1, 2, 3].map((at) => ({ url: world.media(`${at}.svg`), width: 640, height: 480 })),
    }),
  )
  await track(database, { id: ids.pictures, ago: 60 })
  await call(receiver, `POST /api/requests/${ids.pictures}/reconcile`)
  return its.stop
})
afterAll(async () => {
  await world.close()
})

const picture = (requestId: string) => ({
  requestId,
  body: Buffer.from(
    JSON.stringify({
      request_id: requestId,
      status: 'OK',
      payload: { model: 'aurora-image', output: { images: [{ url: world.media('partly.svg') }] }, cost: 4 },
    }),
  ),
})
const hostile = (requestId: string) => ({
  requestId,
  body: Buffer.from(
    JSON.stringify({
      request_id: requestId,
      status: 'OK',
      payload: { model: `\u202e${nasty}`, output: { audio: { url: 'javascript:document.title="owned"' } }, cost: 1.25 },
    }),
  ),
})

const open = (path: string, look: Look = {}) => openPage(browser, `${receiver.internalUrl}${path}`, look)
type Opened = Awaited<ReturnType<typeof open>>
const shownIds = (page: Opened) =>
  page.locator('[data-row]').evaluateAll((rows) => rows.map((row) => row.getAttribute('data-row')))
const rowOf = (page: Opened, id: string) => page.locator(`[data-row="${id}"]`)
const cellsOf = async (page: Opened, id: string) =>
  (await rowOf(page, id).locator('td').allInnerTexts()).map((text) => text.replaceAll(/\s+/g, ' ').trim())

describe('the list of requests', () => {
  it("shows our state beside the provider's, with times", async () => {
    const page = await open('requests')
    const heads = ['Request', 'Here', 'At the provider', 'Model, key', 'Submitted', 'Media']
    expect(await page.locator('thead th').allInnerTexts()).toEqual(heads)
    expect(await cellsOf(page, ids.pictures)).toEqual([
      ids.pictures.slice(0, 8),
      'COMPLETED',
      'COMPLETED',
      'aurora-image live',
      expect.stringMatching(/^(just now|\d+ (s|min) ago)$/),
      '4 of 4',
    ])
    expect(await cellsOf(page, ids.failed)).toEqual(expect.arrayContaining(['FAILED']))
    expect(await cellsOf(page, ids.lost)).toEqual(
      expect.arrayContaining([expect.stringMatching(/^IN_QUEUE overdue 88 min$/), 'not found']),
    )
    expect(await cellsOf(page, ids.doubted)).toEqual(expect.arrayContaining(['FAILED contradiction']))
    expect(await cellsOf(page, ids.partly)).toEqual(expect.arrayContaining(['1 so far']))
    await shoot(page, 'requests')
  })

  it('shows for how long a request is overdue, and the result of the last poll', async () => {
    const page = await open('requests?overdue=true')
    expect(await shownIds(page)).toEqual([ids.overdue, ids.lost])
    expect((await cellsOf(page, ids.overdue)).slice(1, 3)).toEqual(['IN_PROGRESS overdue 58 min', 'IN_PROGRESS 40 %'])
  })

  it('shows the first picture, really loaded', async () => {
    const page = await open(`requests?ids=${ids.pictures}`)
    const picture = page.locator('img.thumb')
    await eventually(() => picture.evaluate((image) => Number(Object(image).naturalWidth) > 0))
    expect(await picture.getAttribute('src')).toBe(world.media('0.svg'))
  })

  it.each([
    ['status=FAILED', () => [ids.doubted, ids.failed]],
    ['status=FAILED&key_name=sandbox', () => [ids.doubted]],
    ['model=vela', () => [ids.overdue, ids.lost]],
    ['overdue=false&model=vela', () => []],
    ['contradiction=true', () => [ids.doubted]],
    ['until=2020-01-01', () => []],
    [`ids=${ids.partly.toUpperCase()}`, () => [ids.partly]],
    [`ids=${ids.partly}&status=FAILED`, () => []],
  ])('filters by %s', async (query, expected) => {
    expect((await readPage(`${receiver.internalUrl}requests?${query}`)).rows).toEqual(expected())
  })

  it.each([
    ['ids=nobody', 'ids: must be a comma-separated list of uuids'],
    ['status=DONE', 'status: must be one of'],
    ['since=yesterday', 'since: must be a duration like 15m, or a time'],
    ['overdue=maybe', 'overdue: must be true or false'],
    ['cursor=abc', 'cursor: is not a next_cursor of this list'],
    ['colour=red', 'colour: is not a parameter'],
  ])('keeps the form and explains the wrong %s', async (query, message) => {
    const { status, said, main } = await readPage(`${receiver.internalUrl}requests?${query}`)
    expect(status).toBe(400)
    expect(said.alert).toContain(message)
    expect(main).toMatch(/<form[^>]* class="filters/)
  })

  it('explains an empty list', async () => {
    expect(await (await open('requests?overdue=true&model=none')).locator('.empty').innerText()).toContain(
      'No request is overdue',
    )
    expect(await (await open('requests?model=none')).locator('.empty').innerText()).toContain('No request matches')
  })

  it('pages through rows that keep their places while new ones arrive', async () => {
    const model = 'paged'
    const rows = await Promise.all([500, 400, 300].map((ago) => track(database, { ago, model })))
    const first = await open(`requests?model=${model}&limit=2`)
    expect(await shownIds(first)).toEqual([rows[2], rows[1]])
    await track(database, { ago: 1, model })
    await first.getByRole('link', { name: 'Older' }).click()
    await eventually(async () => JSON.stringify(await shownIds(first)) === JSON.stringify([rows[0]]))
    // The pasted link shows the same.
    expect(await shownIds(await open(new URL(first.url()).href.slice(receiver.internalUrl.length)))).toEqual([rows[0]])
    await database.sql`delete from mediadock.requests where model = ${model}`
  })

  it('is used by keyboard: search, filter, mark, open', async () => {
    const page = await open('requests')
    await page.keyboard.press('/')
    await page.keyboard.type(ids.failed.slice(0, 8))
    await page.keyboard.press('Enter')
    await page.waitForURL(/search\?q=/)
    await page.keyboard.press('j')
    await page.waitForURL(/open=/)
    expect(new URL(page.url()).searchParams.get('open')).toBe(ids.failed)
    await page.keyboard.press('Enter')
    await page.waitForURL(`**/requests/${ids.failed}`)
  })

  it('keeps a pasted link: the same filters and the same row', async () => {
    const page = await open(`requests?status=FAILED&since=2020-01-01&open=${ids.failed}`)
    expect(await rowOf(page, ids.failed).getAttribute('class')).toContain('marked')
    expect(await page.locator('select[name=status]').inputValue()).toBe('FAILED')
  })

  it('escapes foreign content', async () => {
    const page = await open('requests')
    await rowOf(page, ids.hostile).waitFor()
    expect(await rowOf(page, ids.hostile).innerText()).toContain('<img src=x')
    expect(await page.title()).toBe('Requests · mediadock')
    expect(await page.locator('[src^="javascript:"], [href^="javascript:"], img[src="x"]').count()).toBe(0)
    expect(await rowOf(page, ids.hostile).locator('.thumb').getAttribute('title')).toBe('Not shown: it is not https')
  })

  it('is accessible in both schemes, and fits a phone', async () => {
    await expectGoodLooks(await open('requests'), 'requests-looks')
  })
})
