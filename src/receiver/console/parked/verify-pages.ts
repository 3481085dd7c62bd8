import { Router } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { fieldsOf, readForm } from '../../../platform/pages/form.ts'
import { type Markup, linkTo, type Query, confirmation, table } from '../../../platform/pages/parts.ts'
import { auditedCall } from '../../api/operation.ts'
import { maxPageItems } from '../../domain/page-limits.ts'
import { maxIdsInAddress } from '../../domain/problem.ts'
import { reloadKeys, wordsOf } from '../../on-call/cause-words.ts'
import { verifyQuarantine } from '../../on-call/verify-quarantine.ts'
import { readQuarantineCauses } from '../../queries/causes.ts'
import { readWithin } from '../../queries/deadline.ts'
import { listDeliveries, type DeliveryEntry } from '../../queries/deliveries.ts'
import { digits, parseFilters, textFilter } from '../../queries/filters.ts'
import { checkQuarantine, type Check } from '../../queries/quarantine.ts'
import { deliveryColumns } from '../deliveries/delivery-rows.ts'
import { sumOf } from '../parts/cause.ts'
import { listTable } from '../parts/list-view.ts'
import { badge, counted, foreign, notice, number, problem, queryOf, without } from '../parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from '../parts/shell.ts'

const chosenSchema = z.strictObject({ reason: textFilter.optional() })
const countSchema = digits(9, 'must be a whole number')
const resultSchema = z.strictObject({
  reason: textFilter.optional(),
  checked: countSchema,
  accepted: countSchema,
  refused: countSchema,
  ids: z.string().optional(),
})

/** Verifying refused arrivals again: the confirmation, then the result. */
export function verifyRoutes(console: ConsoleDeps): Router {
  const { db } = console
  const router = Router()
  router.get('/parked/verify', async (req, res) => {
    const { reason } = parseFilters(chosenSchema, queryOf(req))
    sendConsolePage(console, res, { title: 'Verify again', body: await previewPage(console, reason) })
  })
  router.post('/parked/verify', readForm, async (req, res) => {
    const { reason } = parseFilters(chosenSchema, fieldsOf(req))
    const ids: string[] = []
    const onAccepted = (accepted: readonly string[]) => void ids.push(...accepted)
    const { checked, accepted, refused } = await auditedCall(console, req, {
      action: 'verify_quarantine',
      target: reason === undefined ? undefined : `reason=${reason}`,
      detailOf: (verified) => verified,
      work: () => verifyQuarantine(console, { reason, onAccepted }),
    })
    const counts = { checked: `${checked}`, accepted: `${accepted}`, refused: `${refused}` }
    const shown = ids.slice(0, maxIdsInAddress).join(',')
    res.redirect(303, linkTo('/parked/verified', { reason, ...counts, ids: shown }))
  })
  router.get('/parked/verified', async (req, res) => {
    const query = queryOf(req)
    const result = parseFilters(resultSchema, without(query, 'open'))
    const ids = result.ids?.split(',').filter((id) => z.guid().safeParse(id).success) ?? []
    const { data: deliveries } = await listDeliveries(db, { ids, limit: maxPageItems })
    sendConsolePage(console, res, { title: 'Verified again', body: resultPage(result, deliveries, query) })
  })
  return router
}

/** A hint that a secret was added, with the number of arrivals that it would accept. */
export function addedSecretHint(check: Check | undefined): Markup {
  if (check === undefined || check.acceptable === 0) return html``
  const { tried, acceptable, keyNames } = check
  const many =
    acceptable === tried
      ? tried === 1
        ? 'the newest refused arrival'
        : `all of the newest ${tried} refused arrivals`
      : `${acceptable} of the newest ${tried} refused arrivals`
  return notice(
    html`A secret was added: ${many} that no secret matched can now be accepted, with the key ${names(keyNames)}. <a href="/parked/verify?reason=no_matching_secret">Verify again…</a>`,
  )
}

async function previewPage({ db, keys, settings }: ConsoleDeps, reason: string | undefined): Promise<Markup> {
  const causes = (await readWithin(db, readQuarantineCauses)).filter(
    (cause) => reason === undefined || cause.reason === reason,
  )
  // Only this cause can be fixed by a secret.
  const tried = reason ?? 'no_matching_secret'
  const check = await checkQuarantine(db, keys(), tried)
  const secrets = keys().all.map(({ name }) => name)
  const all = sumOf(causes)
  const back = reason === undefined ? '/parked' : linkTo('/parked', { view: 'quarantine', reason })
  if (all === 0)
    return html`<h1>Verify again</h1>${confirmation({ title: 'There is nothing to verify', what: html`<p>The quarantine has no such arrivals. Earlier ones were accepted, replaced by newer ones, or deleted after RETENTION_DAYS.</p>`, confirm: undefined, back })}`
  const what = html`<p>Each arrival is verified with the secrets that are configured now (${names(secrets)}). The time window is checked against its arrival. Authentic arrivals are accepted and land; the others stay in the quarantine. This is safe to repeat.</p>
    ${table({
      label: 'To be checked',
      columns: ['Cause, with a trial of the newest', { head: 'To verify', kind: 'number' }],
      rows: causes.map(({ reason, count }) => [
        html`<div class="detail">${wordsOf(reason).title} <span class="mono soft">${reason}</span><br />${tryOf(reason === tried ? check : undefined)}</div>`,
        number(count),
      ]),
    })}
    ${isOfTime(reason) || (check !== undefined && check.acceptable > 0) ? '' : html`<p>None of the tried arrivals would be accepted. If a secret is missing, add it first; <a href="/keys">Keys</a> lists the configured ones. ${reloadKeys(settings)}</p>`}`
  const title = all === 1 ? 'Verify one refused arrival again?' : `Verify ${number(all)} refused arrivals again?`
  return html`<h1>Verify again</h1>
    ${confirmation({ title, what, confirm: { path: '/parked/verify', label: all === 1 ? 'Verify it' : `Verify ${number(all)}`, fields: { reason } }, back })}`
}

function tryOf(check: Check | undefined): Markup {
  if (check === undefined) return html`<span class="soft">Not tried: no secret changes this cause.</span>`
  const { tried, acceptable, keyNames } = check
  if (acceptable === 0) return html`${badge('stays refused', '')} <span class="soft">${tried} of ${tried}</span>`
  return html`${badge('accepted', 'good')} ${acceptable} of ${tried} <span class="soft">by the key ${names(keyNames)}</span>`
}

function resultPage(
  { reason, checked, accepted, refused }: z.infer<typeof resultSchema>,
  deliveries: readonly DeliveryEntry[],
  query: Query,
): Markup {
  const all = counted(checked, 'refused arrival', 'refused arrivals')
  const of = reason === undefined ? '' : html` of the cause “${wordsOf(reason).title}”`
  const summary =
    accepted === 0
      ? problem(
          html`${all}${of} checked, none accepted: ${isOfTime(reason) ? 'their signed time was outside the window on arrival. The reconciler polls their tracked requests.' : html`with today's secrets none is authentic. If a secret is missing, add it first; <a href="/keys">Keys</a> lists the configured ones.`}`,
        )
      : notice(
          html`${all}${of} checked: ${number(accepted)} accepted${refused === 0 ? '' : html`, ${number(refused)} still refused`}.`,
        )
  return html`<h1>Verified again</h1> ${summary}
    ${accepted === 0 ? '' : outcome(deliveries, query)}
    <p class="inline actions">
      <a class="button quiet" href="/parked">To the causes</a>
      ${refused === 0 ? '' : html`<a class="button quiet" href="${linkTo('/parked', { view: 'quarantine', reason })}">Those still refused</a>`}
      <a class="button quiet" href="/audit?action=verify_quarantine">In the audit</a>
    </p>`
}

/** The outcomes of the accepted webhooks, fetched again while some still wait. */
function outcome(deliveries: readonly DeliveryEntry[], query: Query): Markup {
  const waiting = deliveries.filter(({ state }) => state === 'pending').length
  const again = linkTo('/parked/verified', without(query, 'open'))
  return html`<section class="card" aria-label="What was accepted" data-accepted ${waiting > 0 ? html`hx-get="${again}" hx-select="[data-accepted]" hx-trigger="every 1s" hx-swap="outerMorph"` : ''}>
    <p>${waiting > 0 ? `${number(waiting)} of ${number(deliveries.length)} still wait to land…` : `All have ended: ${ends(deliveries)}.`}</p>
    ${deliveries.length === maxIdsInAddress ? html`<p class="soft">The first ${maxIdsInAddress} deliveries.</p>` : ''}
    ${listTable({ label: 'What was accepted', columns: deliveryColumns, items: deliveries, empty: 'They have been pruned since.' })}
  </section>`
}

function ends(deliveries: readonly DeliveryEntry[]): string {
  const groups = [...Map.groupBy(deliveries, ({ state }) => state)].map(
    ([state, some]) => `${number(some.length)} ${state}`,
  )
  return groups.join(', ') || 'they have been pruned since'
}

/** A cause of time: a configured secret matches, so another secret would not help. */
export function isOfTime(reason: string | undefined): boolean {
  return reason === 'timestamp_too_old' || reason === 'timestamp_in_future'
}

function names(keys: readonly string[]): Markup {
  return html`${keys.map((name, at) => html`${at === 0 ? '' : ', '}<b>${foreign(name)}</b>`)}`
}
