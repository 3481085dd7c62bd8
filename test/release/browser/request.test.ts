import { randomUUID } from 'node:crypto'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  expectAccessible,
  expectGoodLooks,
  expectNoOverflow,
  openPage,
  phone,
  shoot,
  type Look,
} from '../../browser/support/console.ts'
import {
  completed,
  notified,
  pictures,
  running,
  startWorld,
  track,
  type World,
} from '../../browser/support/request-world.ts'
import { call, deliverAndSettle } from '../../receiver/api/calls.ts'
import { sharedBrowser } from '../../support/browser.ts'
import type { TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import type { TestReceiver } from '../../support/receiver.ts'
import { deliver, failed, okAudio } from '../../support/webhooks.ts'
import { withReceiver } from '../../support/with-receiver.ts'

let browser: Browser
let database: TestDatabase
let world: World
let receiver: TestReceiver
const nasty = '<img src=x onerror="document.title=\'owned\'">'
const failedId = randomUUID()

// Tests of the same page without a browser are in browser/request.test.ts.

beforeAll(async () => {
  browser = await sharedBrowser()
  world = await startWorld()
  const its = await withReceiver({
    providerUrl: world.url,
    settings: { webhookPublicUrl: 'https://hooks.test/webhooks' },
  })
  ;({ database, receiver } = its)
  return its.stop
})
afterAll(async () => {
  await world.close()
})

const open = (path: string, look: Look = {}) => openPage(browser, `${receiver.internalUrl}${path}`, look)
type Opened = Awaited<ReturnType<typeof open>>
const steps = async (page: Opened) => (await page.locator('.timeline b').allInnerTexts()).map((text) => text.trim())
const card = (page: Opened, name: string) => page.getByRole('region', { name, exact: true })
const ask = (page: Opened) => page.getByRole('button', { name: 'Ask the provider now' }).click()
const deliverTo = () => ({ receiver, database })

async function generated(): Promise<string> {
  const { json } = await call(receiver, 'POST /api/generations', {
    body: { model: 'aurora-image', input: { prompt: 'a lighthouse' }, metadata: { order: 42 } },
  })
  return json.request_id
}

describe('the page of a request', () => {
  it('shows all known events in chronological order', async () => {
    const id = await generated()
    world.says(id, running(id))
    await call(receiver, `POST /api/requests/${id}/reconcile`)
    const delivery = await deliverAndSettle(deliverTo(), notified(id, { images: [{ url: world.media('0.svg') }] }), {
      webhookId: 'wh_all',
    })
    await deliverAndSettle(deliverTo(), notified(id, { images: [{ url: world.media('0.svg') }] }), {
      webhookId: 'wh_all',
    })
    world.says(id, completed(id, pictures(world, 4), 0))
    await call(receiver, `POST /api/requests/${id}/reconcile`)
    await eventually(
      async () => (await database.sql`select from mediadock.polls where request_id = ${id}`).length === 2,
    )

    const page = await open(`requests/${id}`)
    const known = await steps(page)
    expect(known.slice(0, 3)).toEqual(['Created at the provider', 'Submit received', 'Accepted by the provider'])
    // Polled by hand, before and after the webhook that carried only the first picture.
    expect(known.slice(3).toSorted()).toEqual(
      [
        'Polled',
        'Webhook arrived',
        'Webhook arrived',
        'Webhook processed',
        'Landed here',
        'Polled',
        '4 pictures',
        'Ended at the provider',
      ].toSorted(),
    )
    expect(await page.locator('.timeline').innerText()).toMatch(
      /with key live running[\s\S]*Webhook arrived accepted delivery [0-9a-f]{8}[\s\S]*duplicate[\s\S]*with key live result/,
    )
    expect(await page.locator('.timeline a').first().getAttribute('href')).toBe(`/deliveries/${delivery}`)
    expect(await card(page, 'Submitted here').innerText()).toMatch(/Attempts\s+1/)
    expect(await card(page, 'Metadata').locator('pre').innerText()).toBe('{\n  "order": 42\n}')
    expect(await card(page, 'Output').innerText()).toContain('"original_url"')
    expect(await card(page, 'Media').innerText()).toContain('4 of 4')
    const all = page.locator('.gallery img')
    await eventually(
      async () =>
        (await all.evaluateAll((images) => images.filter((image) => Number(Object(image).naturalWidth) > 0).length)) ===
        4,
    )
    await expectGoodLooks(page, 'request')
  })

  it("shows our state beside the provider's while the request is open, and the next step", async () => {
    const id = await track(database, { ago: 3600 })
    world.says(id, { status: 503, body: {} })
    await call(receiver, `POST /api/requests/${id}/reconcile`)
    const page = await open(`requests/${id}`)
    expect(await page.locator('.head').innerText()).toMatch(/IN_QUEUE\s+overdue 58\smin/)
    const beside = card(page, 'Here and at the provider')
    expect(await beside.innerText()).toMatch(/IN_QUEUE\s+unreachable/)
    expect(await beside.innerText()).toContain('the provider gave no usable answer: answered 503')
    expect(await beside.innerText()).toMatch(/Next poll\s+\d{4}-/)
    expect(await card(page, 'Deliveries').innerText()).toContain('No webhook for this request was accepted')
    await shoot(page, 'request-open')
  })

  it('shows why it failed, and a contradicting webhook', async () => {
    const id = randomUUID()
    await deliverAndSettle(deliverTo(), failed(id), { webhookId: 'wh_failed' })
    const otherwise = await deliverAndSettle(deliverTo(), okAudio(id), { webhookId: 'wh_otherwise' })
    const page = await open(`requests/${id}`)
    expect(await page.locator('.head').innerText()).toMatch(/FAILED\s+contradiction/)
    expect(await card(page, 'About').innerText()).toMatch(/GENERATION_FAILED\s+the model gave up/)
    const said = await card(page, 'Contradiction').innerText()
    expect(said).toMatch(
      /FAILED stands\.[\s\S]*FAILED \(status ERROR\)[\s\S]*stands[\s\S]*COMPLETED \(status OK\)[\s\S]*not applied/,
    )
    expect(await page.locator(`a[href="/deliveries/${otherwise}"]`).count()).toBeGreaterThan(0)
    await shoot(page, 'request-failed')
  })

  it('plays sound and video', async () => {
    const sound = randomUUID()
    await deliverAndSettle(deliverTo(), notified(sound, { audio: { url: world.media('a.wav') } }), {
      webhookId: 'wh_sound',
    })
    const page = await open(`requests/${sound}`)
    const player = page.locator('audio[controls]')
    await eventually(() => player.evaluate((audio) => Number(Object(audio).duration) > 0))
    await expectAccessible(page)
    await shoot(page, 'request-sound')
    const video = randomUUID()
    await deliverAndSettle(deliverTo(), notified(video, { video: { url: world.media('v.mp4') } }), {
      webhookId: 'wh_video',
    })
    // The stand serves an empty file.
    const lost = await open(`requests/${video}`, { expectProblems: true })
    await lost.getByText('This video is not available at its link.').waitFor()
  })

  it('leads to the replay of its deliveries, by key too', async () => {
    await deliver(receiver.webhookUrl, failed(failedId).body)
    await eventually(async () => (await call(receiver, `GET /api/requests/${failedId}`)).json?.landed_at)
    const page = await open(`requests/${failedId}`)
    await page.keyboard.press('r')
    await page.waitForURL(`**/deliveries/replay?request_id=${failedId}`)
  })

  it('walks the timeline by keyboard and opens the delivery of a step', async () => {
    const page = await open(`requests/${failedId}`)
    const at = (await steps(page)).indexOf('Webhook arrived')
    for (let step = 0; step <= at; step += 1) await page.keyboard.press('j')
    expect(await page.locator('.timeline > li.marked b').innerText()).toBe('Webhook arrived')
    const same = await open(new URL(page.url()).href.slice(receiver.internalUrl.length))
    expect(await same.locator('.timeline > li.marked b').innerText()).toBe('Webhook arrived')
    await page.keyboard.press('Enter')
    await page.waitForURL(/\/deliveries\/[0-9a-f-]{36}$/)
  })
})

describe('Ask the provider now', () => {
  const pressed = async (id: string) => {
    const page = await open(`requests/${id}`)
    await ask(page)
    await page.waitForURL(/poll=/)
    return page
  }
  const audit = async (id: string) =>
    (await database.sql`select via, action, detail from mediadock.audit where target = ${id}`).map((row) => ({
      ...row,
    }))

  it("lands the provider's result, reports it, and records it", async () => {
    const id = await track(database, { ago: 200 })
    world.says(id, completed(id, pictures(world, 2)))
    const page = await pressed(id)
    expect(await page.getByRole('status').first().innerText()).toContain('result landed: the request is now COMPLETED')
    expect(await card(page, 'Media').innerText()).toContain('2 of 2')
    await shoot(page, 'request-polled')
    await eventually(async () => (await audit(id)).length === 1)
    expect(await audit(id)).toEqual([
      { via: 'console', action: 'reconcile', detail: { outcome: 'landed', was: 'IN_QUEUE', status: 'COMPLETED' } },
    ])
    // The pasted link says the same.
    expect(
      await (await open(page.url().slice(receiver.internalUrl.length))).getByRole('status').first().innerText(),
    ).toContain('result landed')
    await ask(page)
    await page.getByText("Nothing changed: the provider's result was known already").waitFor()
  })
})

describe('foreign content', () => {
  it('stays text: names, errors, metadata, links', async () => {
    const id = await track(database, { ago: 10, model: `\u202e${nasty}`, keyName: nasty })
    await database.sql`update mediadock.requests set metadata = ${JSON.stringify({ note: `${nasty}\u202e`, url: 'javascript:alert(1)' })}::text::jsonb where request_id = ${id}`
    const body = Buffer.from(
      JSON.stringify({
        request_id: id,
        status: 'OK',
        payload: { model: nasty, output: { images: [{ url: 'javascript:document.title="owned"' }] }, cost: 1 },
      }),
    )
    await deliverAndSettle(deliverTo(), { requestId: id, body }, { webhookId: 'wh_hostile' })
    const page = await open(`requests/${id}`)
    await page.getByText('no link: it is not https').first().waitFor()
    expect(await page.locator('[src^="javascript:"], [href^="javascript:"], img[src="x"]').count()).toBe(0)
    expect(await page.title()).toBe(`Request ${id.slice(0, 8)} · mediadock`)
    // A mark that would turn the line around is named instead.
    expect(await card(page, 'Metadata').locator('.hidden-char').innerText()).toBe('U+202E')
    await expectAccessible(page)
    await page.setViewportSize(phone)
    await expectNoOverflow(page)
    await shoot(page, 'request-hostile-phone')
  })

  it('is shortened if large, and can be downloaded complete', async () => {
    const id = await track(database, { ago: 10 })
    await database.sql`update mediadock.requests set metadata = jsonb_build_object('big', repeat('x', 1000000)) where request_id = ${id}`
    const page = await open(`requests/${id}`)
    expect((await card(page, 'Metadata').locator('pre').innerText()).length).toBe(64 * 1024)
    await expectNoOverflow(page)
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: 'Download output and metadata' }).click(),
    ])
    expect(download.suggestedFilename()).toBe(`${id}.json`)
    const { headers, text } = await call(receiver, `GET /requests/${id}/output.json`)
    expect(headers.get('content-type')).toBe('application/octet-stream')
    expect(JSON.parse(text)).toMatchObject({ metadata: { big: 'x'.repeat(1_000_000) } })
  })
})

describe('an untracked id', () => {
  it('a webhook id: 404 with advice, and a search for it', async () => {
    const page = await open('requests/wh_failed', { expectProblems: true })
    expect(await page.getByRole('alert').innerText()).toContain('A request id is a uuid')
    await expectAccessible(page)
    await shoot(page, 'request-unknown')
    await page.getByRole('link', { name: 'Search everything for it' }).click()
    await page.waitForURL(/\/(search\?q=|deliveries\/)/)
  })

  it('has a page if a refused webhook names it', async () => {
    const { requestId, body } = okAudio()
    await deliver(receiver.webhookUrl, body, { secret: 'whsec_of_no_key' })
    await eventually(async () => (await database.sql`select from mediadock.quarantine`).length > 0)
    const page = await open(`requests/${requestId}`)
    await page
      .getByText('No result. A webhook naming this request was refused or could not be stored; see below.')
      .waitFor()
    await page.getByRole('link', { name: 'What to do' }).click()
    await page.waitForURL(/reason=no_matching_secret/)
  })

  it('is found by its beginning', async () => {
    const page = await open(`requests/${failedId.slice(0, 8)}`, { expectProblems: true })
    await page.getByRole('link', { name: 'Search everything for it' }).click()
    await page.locator(`[data-row="${failedId}"]`).waitFor()
  })
})
