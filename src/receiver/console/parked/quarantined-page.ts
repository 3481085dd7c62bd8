import { Router, type Request } from 'express'
import { html } from 'hono/html'
import { type Markup, linkTo, facts, time } from '../../../platform/pages/parts.ts'
import { unknown } from '../../api/operation.ts'
import { statedRequestId, sha256Hex } from '../../domain/delivery.ts'
import { defaultSourceName } from '../../domain/source.ts'
import { pathIn } from '../../domain/webhook-path.ts'
import { wordsOf, type KeysPlace } from '../../on-call/cause-words.ts'
import { findQuarantined, type QuarantinedDetail } from '../../queries/quarantine.ts'
import { bodyPart, bodyViewOf, headersPart, sendDownload, type BodyView } from '../parts/body-view.ts'
import { causeText } from '../parts/cause.ts'
import { card, foreign, notice, shortId, size } from '../parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from '../parts/shell.ts'

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
