import { type Response, Router, type Request } from 'express'
import { html } from 'hono/html'
import { type Markup, linkTo, type Query, type Fact, moment, time, facts } from '../../../platform/pages/parts.ts'
import { unknown } from '../../api/operation.ts'
import { statedRequestId, sha256Hex } from '../../domain/delivery.ts'
import { defaultSourceName } from '../../domain/source.ts'
import { pathIn } from '../../domain/webhook-path.ts'
import { refusalReasons, wordsOf, type KeysPlace } from '../../on-call/cause-words.ts'
import { readQuarantineCauses } from '../../queries/causes.ts'
import { readWithin } from '../../queries/deadline.ts'
import { quarantineListSchema } from '../../queries/filters.ts'
import { listGiveUps, type GiveUp } from '../../queries/give-ups.ts'
import {
  checkQuarantine,
  listQuarantine,
  type QuarantinedEntry,
  findQuarantined,
  type QuarantinedDetail,
} from '../../queries/quarantine.ts'
import { bodyPart, bodyViewOf, headersPart, sendDownload, type BodyView } from '../parts/body-view.ts'
import { causeCard, causeText, sumOf } from '../parts/cause.ts'
import { causeField, listTable, sendList, webhookIdField, type ListColumn } from '../parts/list-view.ts'
import { code, foreign, number, size, sourceLine, card, notice, shortId } from '../parts/parts.ts'
import { type ConsoleDeps, sendConsolePage } from '../parts/shell.ts'
import { addedSecretHint, isOfTime } from './verify-pages.ts'

const path = '/parked'

/** Sends the list of the quarantine, of one cause or of all. */
export async function sendQuarantine(console: ConsoleDeps, res: Response, title: string, given: Query): Promise<void> {
  const { db, keys, settings, clock } = console
  // The form and every link of the page keep the view.
  const query: Query = { ...given, view: 'quarantine' }
  const { reason } = query
  const causes = await readWithin(db, readQuarantineCauses)
  const check = await checkQuarantine(db, keys(), reason ?? 'no_matching_secret')
  const giveUps = await readWithin(db, (tx) => listGiveUps(tx, clock()))
  const moreFacts = failingFacts(giveUps.filter((one) => one.reason === reason && !one.given_up))
  const more = reason === 'no_matching_secret' ? keysExample : html``
  const all = sumOf(causes.filter((cause) => reason === undefined || cause.reason === reason))
  const shown = reason === undefined ? columns : columns.filter(({ name }) => name !== 'cause')
  await sendList(console, res, {
    title,
    above: html`${head(reason)} ${addedSecretHint(check)}
      ${reason === undefined ? '' : causeCard(reason, { causes, keys: settings, more, moreFacts })}`,
    path,
    query,
    fields: [webhookIdField, causeField('Cause', refusalReasons)],
    schema: quarantineListSchema,
    read: (wanted) => listQuarantine(db, keys(), wanted),
    shown: ({ data }) =>
      html`${all === 0 || isOfTime(reason) ? '' : html`<div class="bulk"><a class="button quiet" href="${linkTo('/parked/verify', { reason })}">Verify ${all === 1 ? 'it' : `${reason === undefined ? 'all' : 'these'} ${number(all)}`} again…</a></div>`}
        <div class="card table-card">${listTable({ label: 'Refused arrivals', columns: shown, items: data, empty: emptyQuarantine(query) })}</div>`,
  })
}

const columns: readonly ListColumn<QuarantinedEntry>[] = [
  {
    head: 'Arrived',
    cell: ({ id, arrived_at, headers }) =>
      html`<a href="/parked/quarantine/${id}">${moment(arrived_at, 'precise')}</a>
          ${sourceLine(pathIn(headers).sourceName)}`,
  },
  { head: 'Webhook id', cell: ({ webhook_id }) => html`<span class="mono">${foreign(webhook_id, 24)}</span>` },
  { head: 'Cause', name: 'cause', cell: ({ reason }) => code(reason) },
  { head: 'Size', kind: 'number', cell: ({ bytes }) => size(bytes) },
  {
    head: 'Body begins',
    kind: 'minor',
    cell: ({ body_preview }) => html`<span class="mono soft">${foreign(body_preview, 64)}</span>`,
  },
]

function emptyQuarantine({ reason, webhook_id }: Query): Markup {
  const arrivals = linkTo('/deliveries', { view: 'arrivals', outcome: 'refused', reason, webhook_id })
  return html`Nothing in the quarantine matches. An arrival may have been accepted since, replaced by newer ones, or never kept: see the <a href="${arrivals}">log of arrivals</a>.`
}

function head(reason: string | undefined): Markup {
  return html`<p><a href="${path}">← All causes</a></p>
    <div class="head"><h1>Quarantine${reason === undefined ? '' : `: ${wordsOf(reason).title}`}</h1>${reason === undefined ? '' : html`<span class="mono soft">${reason}</span>`}</div>`
}

/** The old key and the new one beside it, to copy and fill in. */
const twoKeys = `[{ "name": "live", "api_key": "OLD_API_KEY", "signing_secret": "OLD_SECRET" },
 { "name": "live-2", "api_key": "NEW_API_KEY", "signing_secret": "NEW_SECRET" }]`
const keysExample = html`<p>At the provider, a secret belongs to one API key, so a new secret comes with a new key. Keep your other keys. With your values, the configured keys then read:</p>
  <div>
    <pre class="body" data-copy="${twoKeys}" tabindex="0" role="region" aria-label="Example">${twoKeys}</pre>
  </div>`

/** The webhooks of this cause that the provider may still send, the first final attempt first. */
function failingFacts(failing: readonly GiveUp[]): (Fact | false)[] {
  const named = failing.filter(({ request_key_name: name }) => name !== null)
  const keys = [...new Set(named.map(({ request_key_name: name }) => name))].join(', ')
  const [first] = failing
  return [
    named.length > 0 && [
      'For our own requests',
      html`${number(named.length)}, all of the ${keys.includes(', ') ? 'keys' : 'key'} ${foreign(keys)}`,
    ],
    first !== undefined && ["Provider's final attempt", html`from ${time(first.last_attempt_at)} on`],
  ]
}

/** One refused arrival, without its signature. */
export function quarantinedRoutes(console: ConsoleDeps): Router {
  const { db, keys, settings } = console
  const find = async (req: Request) => {
    const id = /^\d{1,15}$/.test(String(req.params['id'])) ? Number(req.params['id']) : undefined
    const kept = id === undefined ? undefined : await findQuarantined(db, id, keys())
    if (!kept) throw unknown(req)
    return kept
  }
  const router = Router()
  router.get('/parked/quarantine/:id', async (req, res) => {
    const body = quarantinedPage(await find(req), bodyViewOf(req), settings)
    sendConsolePage(console, res, { title: 'Refused arrival', body })
  })
  router.get('/parked/quarantine/:id/body', async (req, res) => {
    const { id, body } = await find(req)
    sendDownload(res, `refused-${id}.bin`, body)
  })
  return router
}

function quarantinedPage(kept: QuarantinedDetail, view: BodyView, keys: KeysPlace): Markup {
  const { reason } = kept
  return html`<p><a href="${linkTo('/parked', { view: 'quarantine', reason })}">← ${wordsOf(reason).title}</a></p>
    <div class="head"><h1>Refused arrival</h1><span class="mono soft">${reason}</span></div>
    ${standing(kept)}
    <div class="columns">
      <div>${card('What it is', factsOf(kept))} ${card('Why it was refused', causeText(reason, keys))}</div>
      ${card('Headers', headersPart(kept.headers, 'The signature is stored for verifying again, and never shown.'))}
    </div>
    ${card('Body', bodyPart(`/parked/quarantine/${kept.id}`, kept.body, view))}`
}

/** The effect that verifying again would have now. */
function standing({ matchingKey, reason }: QuarantinedDetail): Markup {
  if (matchingKey === undefined)
    return html`<p class="lead">With today's secrets it is still refused. Its content is not trusted.</p>`
  return notice(
    html`With today's secrets it is authentic: the secret of the key <b>${foreign(matchingKey)}</b> matches. <a href="${linkTo('/parked/verify', { reason })}">Verify again…</a> accepts it.`,
  )
}

function factsOf({ id, arrived_at, webhook_id, headers, body }: QuarantinedDetail): Markup {
  const stated = statedRequestId(body)
  return facts([
    ['Arrived', time(arrived_at, 'precise')],
    ['Source', foreign(pathIn(headers).sourceName ?? defaultSourceName)],
    [
      'Webhook id',
      webhook_id === null
        ? html`<span class="soft">none</span>`
        : html`<a class="mono" href="${linkTo('/deliveries', { view: 'arrivals', webhook_id })}">${foreign(webhook_id, 255)}</a> <span class="soft">as stated</span>`,
    ],
    [
      'Request',
      stated === undefined
        ? html`<span class="soft">the body names no request</span>`
        : html`${shortId('request', stated)} <span class="soft">as stated</span>`,
    ],
    ['Size', size(body.length)],
    ['SHA-256', html`<span class="mono">${sha256Hex(body)}</span>`],
    ['Number', html`<span class="mono">${id}</span> <span class="soft">in the quarantine</span>`],
  ])
}
