import { Router } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { type Markup, linkTo, emptyState, moment } from '../../../platform/pages/parts.ts'
import { placeOf, wordsOf, type CausePlace, type KeysPlace } from '../../on-call/cause-words.ts'
import { readParkedCauses, readQuarantineCauses, type Cause } from '../../queries/causes.ts'
import { readWithin } from '../../queries/deadline.ts'
import { parseFilters } from '../../queries/filters.ts'
import { listGiveUps } from '../../queries/give-ups.ts'
import { checkQuarantine, type Check } from '../../queries/quarantine.ts'
import { causeText, sumOf } from '../parts/cause.ts'
import { looks } from '../parts/list-view.ts'
import { card, counted, number, queryOf, without } from '../parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from '../parts/shell.ts'
import { giveUpCard } from './give-up-card.ts'
import { sendQuarantine, quarantinedRoutes } from './quarantine-list.ts'
import { addedSecretHint, verifyRoutes } from './verify-pages.ts'

const title = 'Parked & quarantine'
const viewSchema = z.object({ view: z.enum(['quarantine', 'parked'], 'must be quarantine or parked').optional() })
const about = 'Deliveries that did not land and arrivals that were refused, by cause, with what to do.'

export function parkedRoutes(console: ConsoleDeps): Router {
  const router = Router()
  router.get('/parked', async (req, res) => {
    const query = queryOf(req)
    const filters = without(query, ...looks)
    if (query['view'] === undefined && Object.keys(filters).length === 0)
      return sendConsolePage(console, res, { title, about, body: await overview(console) })
    const { view } = parseFilters(viewSchema, query)
    const place = view ?? placeOf(query['reason'] ?? '')
    if (place === 'parked') return res.redirect(303, linkTo('/deliveries', { ...filters, state: 'parked' }))
    return sendQuarantine(console, res, title, query)
  })
  return router.use(verifyRoutes(console)).use(quarantinedRoutes(console))
}

async function overview({ db, keys, clock, settings }: ConsoleDeps): Promise<Markup> {
  const now = clock()
  const [quarantined, parked, giveUps, check] = await Promise.all([
    readWithin(db, readQuarantineCauses),
    readWithin(db, (tx) => readParkedCauses(tx)),
    readWithin(db, (tx) => listGiveUps(tx, now)),
    checkQuarantine(db, keys(), 'no_matching_secret'),
  ])
  return html`${addedSecretHint(check)}
    ${card(`Quarantine: ${counted(sumOf(quarantined), 'refused arrival', 'refused arrivals')}`, quarantineBody({ causes: quarantined, check, keys: settings }))}
    ${giveUpCard(giveUps, now)}
    ${card(`Parked: ${counted(sumOf(parked), 'delivery', 'deliveries')}`, parkedBody(parked, settings))}`
}

type Listed = { causes: readonly Cause[]; check?: Check | undefined; keys: KeysPlace }

function quarantineBody({ causes, check, keys }: Listed): Markup {
  if (causes.length === 0) return emptyState('The quarantine is empty: no refused webhook is kept.')
  return html`<p class="soft">Refused with 4xx, because nothing proved that the provider sent them. They are kept so that they can be verified again after a missing secret was added. When space runs out, old arrivals of unknown senders are deleted first.</p>
    ${causeList('quarantine', { causes, check, keys })}
    <div class="inline actions"><a class="button quiet" href="/parked/verify">Verify all ${number(sumOf(causes))} again…</a><a class="button quiet" href="/parked?view=quarantine">List all</a></div>`
}

function parkedBody(causes: readonly Cause[], keys: KeysPlace): Markup {
  if (causes.length === 0) return emptyState('Nothing is parked: every authentic webhook could be used.')
  return html`<p class="soft">Authentic and acknowledged, but not usable as they are. Nothing is lost. Fix the cause, then replay them.</p>
    ${causeList('parked', { causes, keys })}
    <div class="inline actions"><a class="button quiet" href="/deliveries?state=parked">List all</a></div>`
}

function causeList(place: CausePlace, { causes, check, keys }: Listed): Markup {
  return html`<ul class="causes" data-rows>${causes.map((cause) => causeItem(place, cause, { check: cause.reason === 'no_matching_secret' ? check : undefined, keys }))}</ul>`
}

function causeItem(
  place: CausePlace,
  { reason, count, first_seen, last_seen, errors }: Cause,
  { check, keys }: Omit<Listed, 'causes'>,
): Markup {
  const parked = { state: 'parked', reason }
  const list = place === 'parked' ? linkTo('/deliveries', parked) : linkTo('/parked', { view: 'quarantine', reason })
  const tone = (check?.acceptable ?? 0) > 0 ? '' : 'quiet'
  const act =
    place === 'parked'
      ? html`<a class="button quiet" href="${linkTo('/deliveries/replay', parked)}">Replay all…</a>`
      : html`<a class="button ${tone}" href="${linkTo('/parked/verify', { reason })}">Verify again…</a>`
  return html`<li class="cause" data-row="${place}.${reason}">
    <div class="what">
      <h3><a href="${list}">${wordsOf(reason).title}</a> <span class="mono soft">${reason}</span></h3>
      ${causeText(reason, keys, errors)}
    </div>
    <div class="how-many"><b>${number(count)}</b><span class="soft">first seen</span> ${moment(first_seen)} <span class="soft">last seen</span> ${moment(last_seen)}</div>
    <div class="inline">${act}</div>
  </li>`
}
