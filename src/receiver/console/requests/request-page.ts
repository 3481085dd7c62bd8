import { Router, type Request as HttpRequest, type Response } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { formatOrCut, shownCharacters } from '../../../platform/json-text.ts'
import { type Markup, linkTo, type Query, action, facts, time, confirmation } from '../../../platform/pages/parts.ts'
import { auditedCall, unknown, uuidParam } from '../../api/operation.ts'
import { auditedCancel } from '../../api/requests.ts'
import { readWithin } from '../../queries/deadline.ts'
import { findMentions, type Mentions } from '../../queries/find.ts'
import { readRequest, type RequestDetail } from '../../queries/request-detail.ts'
import { findRequest, type Request } from '../../queries/requests.ts'
import { cancelOf } from '../../submitting/canceling.ts'
import { keptFrom } from '../../upkeep/retention.ts'
import { deliveryColumns } from '../deliveries/delivery-rows.ts'
import { sendDownload } from '../parts/body-view.ts'
import { listTable } from '../parts/list-view.ts'
import { gallery, type LinkPolicy } from '../parts/media.ts'
import { badge, card, credits, foreign, notice, number, problem, size, visible, queryOf } from '../parts/parts.ts'
import { sendConsolePage, type ConsoleDeps, type When } from '../parts/shell.ts'
import { bothSidesCard, contradictionBadge, contradictionCard } from './both-sides-card.ts'
import { timeline } from './request-timeline.ts'
import { answerOf, manualPollWords, parseAnswer, mediaCount, overdueBy, progressOf } from './request-words.ts'
import { mentionedPage, refusedCard, unknownPage } from './untracked-request.ts'

export function requestRoutes(console: ConsoleDeps): Router {
  const { db, clock, when, background } = console
  const sendUnknown = (req: HttpRequest, res: Response) =>
    sendConsolePage(console, res, { title: 'Not found', status: 404, body: unknownPage(String(req.params['id'])) })
  const find = (id: string) => readWithin(db, (tx) => findRequest(tx, id, when()))
  const router = Router()
  router.get('/requests/:id', async (req, res) => {
    const id = idOf(req)
    if (id === undefined) return sendUnknown(req, res)
    const [request, mentions] = await Promise.all([readRequest(db, id, when()), findMentions(db, id)])
    const title = `Request ${id.slice(0, 8)}`
    if (request) {
      const body = requestPage(console, { request, mentions, query: queryOf(req), when: when() })
      return sendConsolePage(console, res, { title, body })
    }
    if (Object.values(mentions).every((some) => some.length === 0)) return sendUnknown(req, res)
    return sendConsolePage(console, res, { title, body: mentionedPage(id, mentions) })
  })
  router.get('/requests/:id/output.json', async (req, res) => {
    const request = await readRequest(db, uuidParam(req, 'id'), when())
    if (!request) throw unknown(req)
    const { metadata, output, submit } = request
    sendDownload(res, `${request.id}.json`, JSON.stringify({ metadata, output, input: submit?.input }))
  })
  router.post('/requests/:id/ask', async (req, res) => {
    const id = idOf(req)
    const before = id === undefined ? undefined : await find(id)
    if (!before) return sendUnknown(req, res)
    const polled = await auditedCall(console, req, {
      action: 'reconcile',
      target: before.id,
      detailOf: (done) => done,
      work: async () => {
        const ending = await background.reconcileOne(before.id)
        const after = (await find(before.id)) ?? before
        return { outcome: answerOf(ending, before, after), was: before.status, status: after.status }
      },
    })
    return res.redirect(303, linkTo(`/requests/${before.id}`, { poll: polled.outcome, at: clock().toISOString() }))
  })
  addCancel(router, console)
  return router
}

/** The uuid in the address; undefined if it is not a uuid. */
function idOf(req: HttpRequest): string | undefined {
  const parsed = z.guid().safeParse(req.params['id'])
  return parsed.success ? parsed.data.toLowerCase() : undefined
}

type Shown = { request: RequestDetail; mentions: Mentions; query: Query; when: When }

function requestPage(console: ConsoleDeps, { request, mentions, query, when }: Shown): Markup {
  const { id, status, contradiction } = request
  const late = overdueBy(request, when)
  const progress = progressOf(request)
  return html`<div ${followed(request, query)}><div class="head">
      <h1>Request <span class="mono" title="${id}">${id.slice(0, 8)}</span></h1>
      ${badge(status)} ${progress === undefined ? '' : html`<span class="soft">${progress}</span>`}
      ${late === undefined ? '' : badge(`overdue ${late}`, 'warn')} ${contradiction ? contradictionBadge(request) : ''}
      <span class="spacer"></span>
      ${cancelOf(console, request) === undefined ? '' : html`<a class="button quiet" href="/requests/${id}/cancel">Cancel…</a>`}
      ${action({ path: `/requests/${id}/ask`, label: 'Ask the provider now' })}
    </div>
    ${manualPoll(request, query)} ${contradictionCard(request)}
    <div class="columns">
      <div>${mediaCard(request, console.links)} ${card('Timeline', timeline(request))}</div>
      <div>
        ${bothSidesCard(request, when)} ${card('About', factsOf(request))}
        ${submitCard(request)}
      </div>
    </div>
    ${deliveriesCard(request, console)} ${refusedCard(mentions)}
    ${jsonCard('Output', request.output, id)} ${jsonCard('Metadata', request.metadata, id)}</div>`
}

/**
 * The attributes with which assets/live.js follows an incomplete request. While a page reads its events, the receiver
 * polls the request, as for any caller who waits.
 */
function followed({ id, landed_at, media_complete, status }: RequestDetail, query: Query): Markup {
  const isOver = landed_at !== null && (media_complete || status !== 'COMPLETED')
  if (isOver) return html`data-request`
  return html`data-request data-live data-follows="/api/results/${id}/events"
    hx-get="${linkTo(`/requests/${id}`, query)}" hx-select="[data-request]"
    hx-trigger="refresh" hx-swap="outerMorph" hx-sync="this:drop"`
}

function mediaCard(request: RequestDetail, links: LinkPolicy): Markup | '' {
  const { media, media_complete } = request
  const count = mediaCount(request)
  if (count === undefined && media.length === 0) return ''
  const more = count === undefined || media_complete ? '' : ": the provider's result may have more"
  return card(
    'Media',
    html`<p class="soft"><b>${count ?? number(media.length)}</b>${more}</p>
      ${media.length === 0 ? '' : gallery(media, links)}`,
  )
}

/** The outcome of “Ask the provider now”, after that button was pressed. */
function manualPoll(request: RequestDetail, query: Query): Markup | '' {
  const answer = parseAnswer(query['poll'])
  if (answer === undefined) return ''
  const at = z.iso.datetime().safeParse(query['at']).data
  const newer = at !== undefined && request.polled_at !== null && request.polled_at > at
  const { good, text } = newer
    ? { good: true, text: 'A newer poll has begun since; see below.' }
    : manualPollWords(answer, request)
  const words = html`${at === undefined ? '' : html`At ${time(at, 'seconds')}: `}${text}`
  return good ? notice(words) : problem(words)
}

function factsOf(request: RequestDetail): Markup {
  const { id, source_name, external_id, model, key_name, sandbox, cost, error_code, error_message } = request
  return facts([
    ['Request id', html`<span class="mono" data-copy="${id}">${id}</span>`],
    ['Source', foreign(source_name)],
    external_id !== id && ["The source's own id", foreign(external_id, 255)],
    ['Model', foreign(model, 200)],
    [
      'Key',
      html`${foreign(key_name, 200)} ${sandbox === null ? '' : html`<span class="soft">${sandbox ? 'sandbox' : 'live'} environment</span>`}`,
    ],
    ['Cost', cost === null ? '—' : `${credits(cost)} ${cost === 1 ? 'credit' : 'credits'}`],
    error_code !== null && ['Error', html`<b>${foreign(error_code, 200)}</b><br />${foreign(error_message, 2000)}`],
  ])
}

/** Only for a request that was submitted through the receiver. */
function submitCard({ submit }: RequestDetail): Markup | '' {
  if (submit === null) return ''
  return card(
    'Submitted here',
    html`${facts([
      ['State', badge(submit.state, submit.state === 'submitted' ? 'good' : 'warn')],
      ['Idempotency key', html`<span class="mono">${submit.idempotency_key}</span>`],
      ['Received', time(submit.created_at)],
      [
        'Attempts',
        `${number(submit.attempts)}${submit.attempts === 1 ? '' : ', all with the same Idempotency-Key: one charge'}`,
      ],
      submit.last_error !== null && ['Last error', foreign(submit.last_error, 500)],
    ])}
      <details><summary>Input</summary>${json('Input', submit.input).shown}</details>`,
  )
}

const shownOfDelivery = ['received', 'says', 'outcome', 'cause', 'webhook_id', 'key']

function deliveriesCard(
  { id, tracked_at, source: way, timeline, submit }: RequestDetail,
  { clock, settings: { retentionDays, webhookPublicUrl } }: ConsoleDeps,
): Markup {
  const deliveries = timeline.flatMap((entry) => (entry.kind === 'delivery' ? [entry.delivery] : [])).toReversed()
  const replay = html`<div class="actions"><a class="button quiet" href="${linkTo('/deliveries/replay', { request_id: id })}" data-key-action="replay">Replay its deliveries… <kbd>r</kbd></a></div>`
  const refused = linkTo('/deliveries', { view: 'arrivals', outcome: 'refused', since: tracked_at })
  // Older deliveries may have been pruned.
  const isKnown = way !== 'webhook' && Date.parse(tracked_at) >= keptFrom(clock(), retentionDays).getTime()
  const none = isKnown
    ? 'No webhook for this request was accepted.'
    : 'No webhook for this request is kept: deliveries are pruned after RETENTION_DAYS.'
  return card(
    'Deliveries',
    html`${listTable({
      label: 'Deliveries of this request',
      columns: deliveryColumns,
      items: deliveries,
      names: shownOfDelivery,
      empty: html`${none} ${isKnown && submit !== null ? addressToTry(webhookPublicUrl) : ''} See the <a href="${refused}">arrivals refused since ${time(tracked_at)}</a>, or ask the provider.`,
    })}${deliveries.length === 0 ? '' : replay}`,
  )
}

/** Where the provider posts the webhooks of submits, and a command that tries it. */
function addressToTry(url: string): Markup {
  const command = `mediadock trigger ok --url ${url}`
  return html`The provider posts webhooks of submits to WEBHOOK_PUBLIC_URL, now <b>${url}</b>. Check that it leads to this receiver: <code data-copy="${command}">${command}</code>.`
}

function jsonCard(title: string, value: unknown, id: string): Markup | '' {
  if (value === null || value === undefined) return ''
  const { shown, length } = json(title, value)
  const cut =
    length > shownCharacters
      ? html`<p class="soft">The first ${size(shownCharacters)} of ${size(length)} are shown. <a href="/requests/${id}/output.json" download>Download output and metadata</a></p>`
      : ''
  return card(title, html`${shown}${cut}`)
}

function json(label: string, value: unknown): { shown: Markup; length: number } {
  const text = JSON.stringify(value)
  return {
    shown: html`<pre class="body" tabindex="0" role="region" aria-label="${label} as JSON">${visible(formatOrCut(text))}</pre>`,
    length: text.length,
  }
}

/** The step before a cancellation, and the cancellation itself. */
function addCancel(router: Router, console: ConsoleDeps): void {
  const { db, clock, when } = console
  const requestOf = async (req: HttpRequest): Promise<Request> => {
    const request = await readWithin(db, (tx) => findRequest(tx, uuidParam(req, 'id'), when()))
    if (!request) throw unknown(req)
    return request
  }
  router.get('/requests/:id/cancel', async (req, res) => {
    const request = await requestOf(req)
    const body = cancelPage(request, cancelOf(console, request) !== undefined)
    return sendConsolePage(console, res, { title: 'Cancel', body })
  })
  router.post('/requests/:id/cancel', async (req, res) => {
    const request = await requestOf(req)
    await auditedCancel(console, req, request)
    // Its webhook may have ended it before this poll.
    const poll = (await requestOf(req)).landed_at === null ? 'cancel_asked' : 'landed'
    return res.redirect(303, linkTo(`/requests/${request.id}`, { poll, at: clock().toISOString() }))
  })
}

function cancelPage({ id, source_name, status }: Request, cancelable: boolean): Markup {
  const what = cancelable
    ? html`<p>This asks ${foreign(source_name)} to cancel the job. It may still complete, and may be charged. A later
        poll or its webhook ends the request.</p>`
    : html`<p>It is ${status}. Either it has ended, or its source cannot cancel jobs or is no longer configured.</p>`
  const path = `/requests/${id}/cancel`
  return html`<h1>Request <span class="mono" title="${id}">${id.slice(0, 8)}</span></h1>
    ${confirmation({
      title: cancelable ? 'Cancel this job?' : 'It cannot be canceled',
      what,
      confirm: cancelable ? { path, label: 'Cancel the job', tone: 'danger' } : undefined,
      back: `/requests/${id}`,
    })}`
}
