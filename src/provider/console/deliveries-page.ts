import type { Express } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import type { Markup } from '../../platform/pages/console-page.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { requestIdSchema } from '../../wire/schemas.ts'
import type { Catalog } from '../catalog/catalog-model.ts'
import { type DeliveryListing, standings } from '../webhooks/delivery-history.ts'
import { findDeliveries, searchDeliveries } from '../webhooks/delivery-search.ts'
import { deliveryTable } from './delivery-table.ts'
import { choice, cursorSchema, filtersIn, instantSchema, oneOfThese, textSchema } from './filter-fields.ts'
import type { Show } from './parts.ts'

const rowsShown = 50

const filterSchema = z.object({
  account: textSchema,
  state: z.enum([...standings, ''], oneOfThese(standings)).default(''),
  model: textSchema,
  since: instantSchema,
  until: instantSchema,
  q: textSchema,
  before: cursorSchema,
})
type Wanted = z.infer<typeof filterSchema>

/** `none` says why there is no row. */
type Found = { rows: DeliveryListing[]; older: string | undefined; none: string }

export function showDeliveryList(
  app: Express,
  { db, catalog }: { db: Database; catalog: () => Catalog },
  show: Show,
): void {
  app.get('/deliveries', async (req, res) => {
    const wanted = filtersIn(req, filterSchema)
    const found = wanted.q === '' ? await searched(db, wanted) : await foundBy(db, wanted.q)
    show(req, res, 'Deliveries', deliveriesPage(found, wanted, catalog()))
  })
}

async function searched(db: Database, { account, state, model, since, until, before }: Wanted): Promise<Found> {
  const page = await searchDeliveries(db, {
    account: account || undefined,
    standing: state || undefined,
    model: model || undefined,
    since: since === '' ? undefined : new Date(`${since}Z`),
    until: until === '' ? undefined : new Date(`${until}Z`),
    before,
    limit: rowsShown,
  })
  const none = page.older
    ? 'None among those that were looked at: go on to the older ones.'
    : page.isAccountKnown
      ? 'No delivery.'
      : `There is no account ${account}.`
  return { rows: page.rows, older: page.older && `${page.older.atUs}_${page.older.id}`, none }
}

async function foundBy(db: Database, q: string): Promise<Found> {
  const id = requestIdSchema.safeParse(q)
  if (!id.success)
    return { rows: [], older: undefined, none: `${q} is no whole request id or delivery id: each is a UUID.` }
  return { rows: await findDeliveries(db, id.data, rowsShown), older: undefined, none: 'No delivery.' }
}

function deliveriesPage({ rows, older, none }: Found, wanted: Wanted, catalog: Catalog): Markup {
  const { account, state, model, since, until, q } = wanted
  const kept = Object.entries({ account, state, model, since, until }).filter(([, value]) => value !== '')
  const link = older === undefined ? '' : `/deliveries?${new URLSearchParams([...kept, ['before', older]]).toString()}`
  const ofAccount = account === '' ? '' : `?${new URLSearchParams({ account }).toString()}`
  return html`<h1>Webhook deliveries</h1>
    <p>
      <a class="button quiet" href="/deliveries/test${ofAccount}">Send a test…</a>
      <a href="/deliveries/verifying">How to verify a webhook</a>, in TypeScript, Python and Go
    </p>
    <form class="inline" method="get" action="/deliveries">
      <label>Account <input name="account" value="${account}" /></label>
      ${choice('state', state, standings)}${choice('model', model, [...catalog.keys()])}
      <label>Since (UTC) <input type="datetime-local" name="since" value="${since}" /></label>
      <label>Until (UTC) <input type="datetime-local" name="until" value="${until}" /></label>
      <label><button>Show</button></label>
    </form>
    <form class="inline" method="get" action="/deliveries" role="search">
      <label>Request id or delivery id <input class="uuid" name="q" value="${q}" spellcheck="false" autocomplete="off" /></label>
      <label><button class="quiet">Find</button></label>
    </form>
    <section class="card">
      ${deliveryTable(rows, none)}
      ${link === '' ? '' : html`<p><a href="${link}" rel="next">Older</a></p>`}
    </section>`
}
