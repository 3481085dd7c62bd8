import { Router, type Request, type Response } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { actorOf } from '../../platform/pages/access.ts'
import { fieldsOf, readForm } from '../../platform/pages/form.ts'
import { type Markup, confirmation } from '../../platform/pages/parts.ts'
import { gone, unknown } from '../api/operation.ts'
import { card, notice, problem } from '../console/parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from '../console/parts/shell.ts'
import { maxCounted } from '../domain/limits.ts'
import { count } from '../on-call/figures.ts'
import { digits, parseFilters, feedFilterQuery, toFeedFilter } from '../queries/filters.ts'
import { addSubscription, isAct, newSubscriptionSchema, subscriptionActs, type SubscriptionTest } from './acts.ts'
import { listSubscriptions, type Subscription } from './list-subscriptions.ts'
import { addForm, secretShown, subscriptionsTable } from './subscription-parts.ts'
import { auditedAct, nameIn } from './subscriptions-api.ts'

const path = '/subscriptions'
const resumeSchema = z.object({ from: z.enum(['oldest', 'newest']).optional() })
const addSchema = z.object({ ...feedFilterQuery, retry_hours: digits(4, 'must be whole hours').optional() })

/** The console's page of subscriptions, with their actions. */
export function subscriptionsRoutes(console: ConsoleDeps): Router {
  const { db, settings, clock } = console
  const show = async (res: Response, above: Markup | '' = '') => {
    const now = clock()
    const about = 'Each change of a result is posted to these services: signed, and in order for each request.'
    const body = html`${above}
      <div class="card table-card">${subscriptionsTable(await listSubscriptions(db), now)}</div>
      ${card('New subscription', addForm())}`
    sendConsolePage(console, res, { title: 'Subscriptions', about, body })
  }
  const ask = async (
    req: Request,
    res: Response,
    question: (one: Subscription) => Omit<Parameters<typeof confirmation>[0], 'back'>,
  ) => {
    const name = nameIn(req)
    const one = (await listSubscriptions(db)).find((subscription) => subscription.name === name)
    if (one === undefined) throw unknown(req)
    const body = html`<h1>Subscriptions</h1>${confirmation({ ...question(one), back: path })}`
    sendConsolePage(console, res, { title: 'Subscriptions', body })
  }

  return Router()
    .get(path, async (_req, res) => show(res))
    .post(path, readForm, async (req, res) => {
      const { name, url, from, ...fields } = fieldsOf(req)
      const { retry_hours, ...filter } = parseFilters(addSchema, fields)
      const wanted = parseFilters(newSubscriptionSchema, { name, url, from, retry_hours, filter: toFeedFilter(filter) })
      const work = () => addSubscription(db, wanted, settings)
      await show(res, secretShown(await auditedAct(console, req, { word: 'add', name: wanted.name, work })))
    })
    .get('/subscriptions/:name/roll', (req, res) =>
      ask(req, res, ({ name }) => ({
        title: `Make a new secret for the subscription ${name}?`,
        what: html`<p>
          A round of posts that is under way still uses the old secret. Later posts use the new one. Posts that the
          service refuses are repeated.
        </p>`,
        confirm: { path: `${path}/${name}/roll`, label: 'Make a new secret' },
      })),
    )
    .get('/subscriptions/:name/remove', (req, res) =>
      ask(req, res, ({ name, backlog }) => {
        const left = `${backlog === maxCounted ? 'at least ' : ''}${count(backlog, 'change', 'changes')}`
        return {
          title: `Remove the subscription ${name}?`,
          what: html`<p>No more changes are posted to it, and its position is forgotten. Its backlog is ${left}.</p>`,
          confirm: { path: `${path}/${name}/remove`, label: 'Remove', tone: 'danger' },
        }
      }),
    )
    .post('/subscriptions/:name/:act', readForm, async (req, res) => {
      const name = nameIn(req)
      const { act } = req.params
      if (!isAct(act)) throw unknown(req)
      const { from } = parseFilters(resumeSchema, fieldsOf(req))
      const options = { actor: actorOf(req), from, now: clock(), signal: gone(res) }
      const work = () => subscriptionActs[act](console, name, options)
      const done = await auditedAct<Done>(console, req, { word: act, name, work })
      if ('secret' in done) return show(res, secretShown({ name, ...done }))
      if ('ok' in done) return show(res, tested(name, done))
      res.redirect(303, path)
    })
}

type Done = { position: number } | { secret: string } | SubscriptionTest

function tested(name: string, { ok, trouble }: SubscriptionTest): Markup {
  return ok
    ? notice(html`A test was posted to <b>${name}</b> and answered 2xx.`)
    : problem(html`A test of <b>${name}</b> failed: <bdi>${trouble}</bdi>.`)
}
