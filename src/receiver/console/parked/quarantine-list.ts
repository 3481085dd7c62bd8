import type { Response } from 'express'
import { html } from 'hono/html'
import { type Markup, linkTo, type Query, type Fact, moment, table, time } from '../../../platform/pages/parts.ts'
import { pathIn } from '../../domain/webhook-path.ts'
import { refusalReasons, wordsOf } from '../../on-call/cause-words.ts'
import { readQuarantineCauses } from '../../queries/causes.ts'
import { readWithin } from '../../queries/deadline.ts'
import { quarantineListSchema } from '../../queries/filters.ts'
import { listGiveUps, type GiveUp } from '../../queries/give-ups.ts'
import type { Page } from '../../queries/page.ts'
import { checkQuarantine, listQuarantine, type QuarantinedEntry } from '../../queries/quarantine.ts'
import { causeCard } from '../parts/cause.ts'
import { webhookIdField } from '../parts/filter-bar.ts'
import { sendList } from '../parts/list-view.ts'
import { code, foreign, number, size, sourceLine } from '../parts/parts.ts'
import type { ConsoleDeps } from '../parts/shell.ts'
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
  const all = causes.reduce(
    (sum, { reason: its, count }) => sum + (reason === undefined || its === reason ? count : 0),
    0,
  )
  await sendList(console, res, {
    title,
    above: html`${head(reason)} ${addedSecretHint(check)}
      ${reason === undefined ? '' : causeCard(reason, { causes, keys: settings, more, moreFacts })}`,
    path,
    query,
    keep: ['view'],
    fields: [
      webhookIdField,
      { name: 'reason', label: 'Cause', options: refusalReasons, wordsOf: (cause) => wordsOf(cause).title },
    ],
    schema: quarantineListSchema,
    read: (wanted) => listQuarantine(db, keys(), wanted),
    shown: (listed) =>
      html`${all === 0 || isOfTime(reason) ? '' : html`<div class="bulk"><a class="button quiet" href="${linkTo('/parked/verify', { reason })}">Verify ${all === 1 ? 'it' : `${reason === undefined ? 'all' : 'these'} ${number(all)}`} again…</a></div>`}
        <div class="card table-card">${quarantineTable(listed, query)}</div>`,
  })
}

function quarantineTable({ data }: Page<QuarantinedEntry>, query: Query): Markup {
  return table({
    label: 'Refused arrivals',
    columns: [
      'Arrived',
      'Webhook id',
      ...(query['reason'] === undefined ? ['Cause'] : []),
      { head: 'Size', kind: 'number' },
      { head: 'Body begins', kind: 'minor' },
    ],
    rows: data.map(({ id, arrived_at, reason, webhook_id, headers, bytes, body_preview }) => ({
      id: String(id),
      cells: [
        html`<a href="/parked/quarantine/${id}">${moment(arrived_at, 'precise')}</a>
          ${sourceLine(pathIn(headers).sourceName)}`,
        html`<span class="mono">${foreign(webhook_id, 24)}</span>`,
        ...(query['reason'] === undefined ? [code(reason)] : []),
        size(bytes),
        html`<span class="mono soft">${foreign(body_preview, 64)}</span>`,
      ],
    })),
    empty: emptyQuarantine(query),
  })
}

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
