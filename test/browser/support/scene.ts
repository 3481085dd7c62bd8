import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import type postgres from 'postgres'
import { call } from '../../receiver/api/calls.ts'
import { eventually } from '../../support/eventually.ts'
import { json, startProviderStand, type ProviderStand } from '../../support/provider-stand.ts'
import { keysOf, liveKey, sandboxKey, startTestReceiver, type TestReceiver } from '../../support/receiver.ts'
import { deliver, type Delivery } from '../../support/webhooks.ts'
import { completed, running, type Answer } from './request-world.ts'

// An hour at the receiver with a little of everything, as the pages and the
// pictures of them need it: all of it came in by HTTP, at its own time.

const retiredKey = { name: 'live-2025', signing_secret: 'whsec_of_last_year', retired: true }
const missingSecret = 'whsec_of_a_key_that_nobody_gave_us'
const samples = path.resolve(import.meta.dirname, '../../../src/provider/engines/samples')

export type Scene = {
  receiver: TestReceiver
  stand: ProviderStand
  ids: Record<'pictures' | 'video' | 'audio' | 'failed' | 'overdue' | 'parked' | 'accepted' | 'quarantined', string>
  /** Everything that can be seen, by a short name. */
  pages: readonly (readonly [name: string, path: string])[]
  stop: () => Promise<void>
}

type Stage = {
  receiver: TestReceiver
  sql: postgres.Sql
  says: (requestId: string, answer: Answer) => void
  media: (file: string) => string
  /** Moves the receiver's clock. */
  at: (secondsAgo: number) => Date
  send: (body: object | Buffer, delivery?: Delivery) => Promise<void>
}

export async function startScene({
  url,
  sql,
  hostile = false,
  isCalm = false,
  minutes = 46,
}: {
  url: string
  sql: postgres.Sql
  hostile?: boolean
  /** Only what goes well, and failed generations. */
  isCalm?: boolean
  /** Each is a row of the lists. */
  minutes?: number
}): Promise<Scene> {
  const stand = await startProviderStand()
  const answers = new Map<string, Answer>()
  stand.answer((id, req, res) => {
    const type = types[path.extname(id)]
    if (type !== undefined)
      return void readFile(path.join(samples, path.basename(id))).then(
        (bytes) => res.writeHead(200, { 'content-type': type }).end(bytes),
        () => res.writeHead(404).end(),
      )
    if (req.method === 'POST') return json(res, 200, submitted(stand.url))
    const { status, body } = answers.get(id) ?? unknown
    return json(res, status, body)
  })
  const receiver = await startTestReceiver({
    databaseUrl: url,
    providerUrl: stand.url,
    settings: {
      webhookPublicUrl: 'https://hooks.example.com/webhooks',
      fetchRatePerMinute: 100,
      reconcileCron: '0 * * * *',
    },
  })
  receiver.setKeys(keysOf(liveKey, sandboxKey, retiredKey))
  const begun = Date.now()
  let now = new Date(begun)
  const stage: Stage = {
    receiver,
    sql,
    says: (requestId, answer) => void answers.set(requestId, answer),
    media: (file) => `${stand.url}/${file}`,
    at: (secondsAgo) => {
      now = new Date(begun - secondsAgo * 1000)
      receiver.setNow(now)
      return now
    },
    send: async (body, delivery = {}) => {
      const bytes = Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body))
      await deliver(receiver.webhookUrl, bytes, {
        t: Math.floor(now.getTime() / 1000),
        webhookId: `wh_${randomUUID().replaceAll('-', '')}`,
        ...delivery,
      })
      await eventually(async () => (await sql`select from mediadock.inbox where due_at <= ${now}`).length === 0)
    },
  }
  const ids = await play(stage, { isCalm, minutes })
  if (hostile) await playHostile(stage)
  receiver.setNow(undefined)
  const refused = isCalm ? 0 : hostile ? 8 : 7
  await eventually(async () => Number((await sql`select count(*) as n from mediadock.quarantine`)[0]?.['n']) >= refused)
  await history(sql, isCalm)
  // Paused, so that nobody is called.
  await sql`insert into mediadock.subscriptions (name, url, secret, state, position, paused_by, paused_at, failures, failing_since, last_error) values
    ('gallery', 'https://gallery.example.com/changes', 'whsec_x', 'paused', 1, 'ada', now(), 3, now() - interval '1 hour', 'it answered 503'),
    ('warehouse', 'https://warehouse.example.com/', 'whsec_y', 'paused', 1, '<b onclick=x>', now(), 0, null, '<img src="x" onerror="alert(1)">')`
  const [parked] = await sql`select id from mediadock.deliveries where parked_reason = 'unknown_status'`
  const [accepted] = await sql`select id from mediadock.deliveries where request_id = ${ids.pictures}`
  const [quarantined] = await sql`select id from mediadock.quarantine where reason = 'no_matching_secret' limit 1`
  const all = {
    ...ids,
    parked: String(parked?.['id']),
    accepted: String(accepted?.['id']),
    quarantined: String(quarantined?.['id']),
  }
  return {
    receiver,
    stand,
    ids: all,
    pages: pagesOf(all),
    stop: async () => {
      await receiver.stop()
      await stand.close()
    },
  }
}

function pagesOf(ids: Scene['ids']): Scene['pages'] {
  return [
    ['now', '/'],
    ['issues', '/issues'],
    ['search', `/search?q=${ids.pictures.slice(0, 12)}`],
    ['replays', '/deliveries/replays'],
    ['deliveries', '/deliveries'],
    ['arrivals', '/deliveries?view=arrivals'],
    ['deliveries-none', '/deliveries?key_name=nobody'],
    ['delivery', `/deliveries/${ids.accepted}`],
    ['delivery-parked', `/deliveries/${ids.parked}`],
    ['replay', '/deliveries/replay?state=parked'],
    ['requests', '/requests'],
    ['requests-overdue', '/requests?overdue=true'],
    ['request-pictures', `/requests/${ids.pictures}`],
    ['request-video', `/requests/${ids.video}`],
    ['request-audio', `/requests/${ids.audio}`],
    ['request-failed', `/requests/${ids.failed}`],
    ['request-overdue', `/requests/${ids.overdue}`],
    ['parked', '/parked'],
    ['parked-cause', '/parked?reason=no_matching_secret'],
    ['parked-list', '/deliveries?state=parked'],
    ['quarantined', `/parked/quarantine/${ids.quarantined}`],
    ['verify', '/parked/verify?reason=no_matching_secret'],
    ['reconciler', '/reconciler'],
    ['keys', '/keys'],
    ['subscriptions', '/subscriptions'],
    ['subscription-remove', '/subscriptions/gallery/remove'],
    ['audit', '/audit'],
  ]
}

const types: Record<string, string> = { '.webp': 'image/webp', '.mp4': 'video/mp4', '.mp3': 'audio/mpeg' }
const unknown: Answer = {
  status: 404,
  body: { error: { type: 'invalid_request_error', code: 'not_found', message: 'unknown' } },
}

function submitted(url: string) {
  const id = randomUUID()
  const base = `${url}/v1/requests/${id}`
  return {
    request_id: id,
    status: 'IN_QUEUE',
    queue_position: 3,
    status_url: `${base}/status`,
    response_url: base,
    cancel_url: `${base}/cancel`,
    cost: 4,
  }
}

function ok(requestId: string, model: string, output: object, cost: number) {
  return { request_id: requestId, status: 'OK', payload: { model, output, cost } }
}

async function play(
  stage: Stage,
  { isCalm, minutes }: { isCalm: boolean; minutes: number },
): Promise<Omit<Scene['ids'], 'parked' | 'accepted' | 'quarantined'>> {
  const { receiver, says, media, at, send } = stage
  const picture = (n: number) => ({
    url: media(`image-${n % 4}.webp`),
    width: 1024,
    height: 768,
    original_url: media(`image-${n % 4}.webp`),
  })
  const newId = async (model: string, keyName = 'live') => {
    const id = randomUUID()
    await call(receiver, 'POST /api/requests', {
      body: {
        request_id: id,
        model,
        key_name: keyName,
        metadata: { order: 4000 + Math.abs(id.charCodeAt(0)), tenant: 'acme' },
      },
    })
    return id
  }
  const ids: Record<string, string> = {}

  if (!isCalm) ids['overdue'] = await playTroubles(stage, newId, picture)

  for (let n = 0; n < minutes; n += 1) {
    const begin = (minutes - n) * 58
    at(begin)
    const sandbox = n % 6 === 5
    const secret = sandbox ? sandboxKey.signing_secret : liveKey.signing_secret
    const kind =
      ['picture', 'pictures', 'video', 'picture', 'audio', 'picture', 'pictures', 'picture', 'failed'][n % 9] ??
      'picture'
    const model = kind === 'video' ? 'vela' : kind === 'audio' ? 'lyra-audio' : 'aurora-image'
    const id = await newId(model, sandbox ? 'sandbox' : 'live')
    ids[kind] = id
    const webhookId = `wh_${randomUUID().replaceAll('-', '')}`
    const post = (body: object) => send(body, { secret, webhookId })
    at(begin - 9 - (n % 5) * 3)
    const outputOf = (output: object) => {
      const { status, body } = completed(id, output, begin - 9 - (n % 5) * 3 + 1)
      says(id, { status, body: { ...body, model } })
      return output
    }
    if (kind === 'failed')
      await post({
        request_id: id,
        status: 'ERROR',
        error: { code: 'GENERATION_FAILED', message: 'The prompt was refused by the safety filter.' },
      })
    else if (kind === 'video')
      await post(
        ok(id, model, outputOf({ video: { url: media('video.mp4'), width: 854, height: 480, duration: 4 } }), 12),
      )
    else if (kind === 'audio')
      await post(ok(id, model, outputOf({ audio: { url: media('audio.mp3'), duration: 8 } }), 2))
    else {
      const pictures = Array.from({ length: kind === 'pictures' ? 4 : 1 }, (_, at) => picture(n + at))
      outputOf({ images: pictures })
      const body = ok(id, model, { images: pictures.slice(0, 1) }, 4 * pictures.length)
      await post(body)
      if (n % 7 === 1) await post(body)
    }
    if (!isCalm && n >= minutes - 10 && n % 2 === 0)
      await send(ok(randomUUID(), 'aurora-image', { images: [picture(n)] }, 4), { secret: missingSecret })
    if (n % 15 === 14) await call(receiver, 'POST /api/reconciler/run')
  }
  at(70)
  if (!isCalm) await send(ok(ids['failed'] ?? '', 'aurora-image', { images: [picture(0)] }, 4))
  at(50)
  for (const prompt of ['a lighthouse at dusk', 'a paper boat'])
    await call(receiver, 'POST /api/generations', {
      body: { model: 'aurora-image', input: { prompt }, metadata: { order: 4242 } },
    })
  if (!isCalm) {
    const [parked] = await stage.sql`select id from mediadock.deliveries where parked_reason = 'not_json'`
    await call(receiver, `POST /api/deliveries/${parked?.['id']}/replay`, { body: {} })
    await call(receiver, 'POST /api/quarantine/verify', { body: {} })
  }
  const { pictures = '', video = '', audio = '', failed = '', overdue = '' } = ids
  return { pictures, video, audio, failed, overdue }
}

/** An hour's troubles: overdue requests, a retired key, bodies that are parked or refused. Returns an overdue request. */
async function playTroubles(
  { receiver, says, media, at, send }: Stage,
  newId: (model: string) => Promise<string>,
  picture: (n: number) => object,
): Promise<string> {
  let overdue: string | undefined
  at(3400)
  for (const [n, model] of ['aurora-image', 'vela', 'aurora-image', 'lyra-audio', 'aurora-image', 'vela'].entries()) {
    const id = await newId(model)
    overdue ??= id
    says(id, n < 3 ? running(id) : n === 3 ? unknown : { status: 503, body: {} })
  }
  at(3300)
  await send(ok(await newId('aurora-image'), 'aurora-image', { images: [picture(1)] }, 4), {
    secret: retiredKey.signing_secret,
  })
  at(2280)
  await send(Buffer.from('<html><body>502 Bad Gateway</body></html>'))
  at(1800)
  await fetch(receiver.webhookUrl, { method: 'POST', headers: { 'x-service-webhook-id': 'scan-1' }, body: '{}' })
  at(1500)
  await send(ok(randomUUID(), 'aurora-image', { images: [picture(2)] }, 4), {
    t: Math.floor((Date.now() - 6000_000) / 1000),
  })
  at(1260)
  await send({ request_id: randomUUID(), status: 'PAUSED', payload: { model: 'vela', output: {}, cost: 0 } })
  at(900)
  await send(ok(await newId('vela'), 'vela', { video: { url: media('video.mp4') } }, 12), {
    secret: sandboxKey.signing_secret,
  })
  return overdue ?? ''
}

export const nasty = '<img src=x onerror="document.title=\'owned\'">'
const turned = '\u202e'

/** Hostile texts. Each must stay text on every page. */
async function playHostile({ receiver, media, at, send, sql }: Stage): Promise<void> {
  at(40)
  await send(ok(randomUUID(), `${turned}${nasty}`, { images: [{ url: 'javascript:document.title="owned"' }] }, 1), {
    webhookId: `wh_${nasty.replaceAll(' ', '_')}`,
  })
  await send(
    ok(randomUUID(), nasty, { video: { url: media(`"><script>document.title='owned'<%2Fscript>/video.mp4`) } }, 1),
  )
  await send({
    request_id: randomUUID(),
    status: 'ERROR',
    error: { code: nasty, message: `${turned}${nasty}`.repeat(20) },
  })
  await send({ request_id: nasty, status: nasty })
  await send({
    ...ok(randomUUID(), 'large', { audio: { url: 'data:text/html,<script>document.title="owned"</script>' } }, 1),
    padding: `${nasty}${turned}`.repeat(20_000).slice(0, 1_000_000),
  })
  await send(
    { request_id: nasty, padding: 'x'.repeat(1_000_000) },
    {
      secret: missingSecret,
      webhookId: '"><script>document.title="owned"</script>'.replaceAll(' ', '_'),
      headers: { 'x-forwarded-for': nasty, 'user-agent': nasty },
    },
  )
  const id = randomUUID()
  await sql`insert into mediadock.requests (request_id, model, key_name, tracked_at, metadata)
    values (${id}, ${`${nasty}${'m'.repeat(180)}`}, ${nasty}, now() - interval '10 minutes', ${JSON.stringify({ [nasty]: turned })}::text::jsonb)`
  await call(receiver, 'POST /api/requests', { body: { request_id: id } })
}

/** The minutes before, which only the loop of a receiver that had run then could have written. */
async function history(sql: postgres.Sql, isCalm: boolean): Promise<void> {
  const isRough = !isCalm
  await sql`
    insert into mediadock.minutes (minute, written_at, arrivals, ack_p50_ms, ack_p95_ms, landed, landing_p50_seconds, landing_p95_seconds, inbox_pending, inbox_oldest_seconds, overdue)
    select at, now(),
      jsonb_build_object('accepted', (60 + 25 * sin(n / 14.0) + random() * 12)::int, 'duplicate', (random() * 4)::int)
        || case when ${isRough} and n < 13 then jsonb_build_object('refused/no_matching_secret', (18 + random() * 6)::int) else '{}' end
        || case when ${isRough} and n = 97 then jsonb_build_object('unavailable/postgres_failed', 31) else '{}' end
        || case when ${isRough} and n % 41 = 7 then jsonb_build_object('parked/unknown_shape', 2) else '{}' end,
      2.1 + random(), 5 + random() * 4 + case when ${isRough} and n between 95 and 98 then 900 else 0 end, 60,
      0.12 + random() * 0.1, 0.6 + random() * 0.5 + case when ${isRough} and n between 60 and 75 then 14 - abs(n - 67) else 0 end,
      (random() * 6 + case when ${isRough} and n between 60 and 75 then 260 - abs(n - 67) * 30 else 0 end)::int, random() * 2, case when ${isRough} and n < 40 then 6 else 0 end
    from generate_series(0, 200) as n, lateral (select date_trunc('minute', now()) - make_interval(mins => n) as at) as minute
    where ${isCalm} or n not between 94 and 96
    on conflict (minute) do update set arrivals = excluded.arrivals, ack_p50_ms = excluded.ack_p50_ms, ack_p95_ms = excluded.ack_p95_ms,
      landing_p50_seconds = excluded.landing_p50_seconds, landing_p95_seconds = excluded.landing_p95_seconds, inbox_pending = excluded.inbox_pending,
      overdue = excluded.overdue, inbox_oldest_seconds = excluded.inbox_oldest_seconds`
  // Of the last minutes, the page reads the counts of the arrivals themselves.
  await sql`
    insert into mediadock.arrival_counts (minute, outcome, reason, arrivals)
    select minute, split_part(what, '/', 1), split_part(what, '/', 2), n::bigint
    from mediadock.minutes, jsonb_each_text(arrivals) as each (what, n)
    where minute between now() - interval '4 minutes' and date_trunc('minute', now()) - interval '1 minute'
    on conflict (minute, outcome, reason) do update set arrivals = excluded.arrivals`
  await sql`insert into mediadock.process_starts (started_at, host, pid, version) values (now() - interval '93 minutes', 'receiver-1', 7, '0.1.0') on conflict do nothing`
}
