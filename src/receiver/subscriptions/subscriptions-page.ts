import { Router, type Request, type Response } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { fieldsOf, readForm } from '../../platform/pages/form.ts'
import {
  type Markup,
  confirmation,
  action,
  moment,
  table,
  time,
  type Row,
  type Tone,
} from '../../platform/pages/parts.ts'
import { unknown } from '../api/operation.ts'
import { card, notice, problem, badge, duration, foreign, number, textOf } from '../console/parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from '../console/parts/shell.ts'
import { feedStatusNames } from '../domain/feed-schema.ts'
import { maxCounted } from '../domain/limits.ts'
import type { FeedFilter } from '../feeding/feed-filter.ts'
import { count } from '../on-call/figures.ts'
import { digits, parseFilters, feedFilterQuery, toFeedFilter } from '../queries/filters.ts'
import { isAct, newSubscriptionSchema, type SubscriptionTest } from './acts.ts'
import { listSubscriptions, type Subscription } from './list-subscriptions.ts'
import { auditedAct, auditedAdd, nameIn } from './subscriptions-api.ts'

const path = '/subscriptions'
const resumeSchema = z.object({ from: z.enum(['oldest', 'newest']).optional() })
const addSchema = z.object({ ...feedFilterQuery, retry_hours: digits(4, 'must be whole hours').optional() })

/** The console's page of subscriptions, with their actions. */
export function subscriptionsRoutes(console: ConsoleDeps): Router {
  const { db, clock } = console
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
      await show(res, secretShown(await auditedAdd(console, req, wanted)))
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
      const done = await auditedAct(console, { req, res, word: act, from })
      if ('secret' in done) return show(res, secretShown({ name, ...done }))
      if ('ok' in done) return show(res, tested(name, done))
      res.redirect(303, path)
    })
}

function tested(name: string, { ok, trouble }: SubscriptionTest): Markup {
  return ok
    ? notice(html`A test was posted to <b>${name}</b> and answered 2xx.`)
    : problem(html`A test of <b>${name}</b> failed: <bdi>${trouble}</bdi>.`)
}

const tones: Record<Subscription['state'], Tone> = { active: 'good', failing: 'warn', paused: '', stopped: 'bad' }

export function subscriptionsTable(all: readonly Subscription[], now: Date): Markup {
  return table({
    label: 'Subscriptions',
    columns: ['Subscription', 'State', { head: 'Backlog', kind: 'number' }, 'Last error', ''],
    rows: all.map((one) => subscriptionRow(one, now)),
    empty: 'There are no subscriptions. Add a URL below, and each change of a result is posted to it.',
  })
}

function subscriptionRow(one: Subscription, now: Date): Row {
  const { name, url, filter, state, backlog, oldest_unsent_at, last_accepted_at, last_error } = one
  const oldest =
    oldest_unsent_at === null
      ? ''
      : html`<div class="soft">oldest ${duration(Math.max(0, now.getTime() - Date.parse(oldest_unsent_at)))}</div>`
  const shown = `${number(backlog)}${backlog === maxCounted ? '+' : ''}`
  const waiting = backlog === 0 ? shown : html`<a href="/api/feed?after=${one.position}">${shown}</a>`
  const since = [
    one.paused_at === null ? [] : html`${moment(one.paused_at)} by ${foreign(one.paused_by, 40)}`,
    one.stopped_at === null ? [] : moment(one.stopped_at),
    last_accepted_at === null ? [] : html`last accepted ${moment(last_accepted_at)}`,
  ].flat()
  return {
    id: name,
    cells: [
      html`<b>${name}</b><div class="soft">${foreign(new URL(url).host, 60)}</div>${filterShown(filter)}`,
      html`${badge(state, tones[state])}${since.map((line) => html`<div class="soft">${line}</div>`)}`,
      html`${waiting}${oldest}`,
      last_error === null
        ? html`<span class="soft">—</span>`
        : html`<div class="detail">${foreign(last_error, 160)}${failuresOf(one)}</div>`,
      buttons(one),
    ],
  }
}

function filterShown(filter: FeedFilter): Markup {
  const members = Object.entries(filter).map(([name, value]) => `${name} ${textOf(value)}`)
  return members.length === 0 ? html`` : html`<div class="soft">only ${foreign(members.join(', '), 160)}</div>`
}

function failuresOf({ failures, failing_since, retry_hours, next_attempt_at, state }: Subscription): Markup | '' {
  if (failing_since === null) return ''
  const stop = new Date(Date.parse(failing_since) + retry_hours * 3_600_000)
  const next =
    state === 'failing'
      ? html`, next post at ${time(next_attempt_at, 'seconds')}. Stops at ${time(stop)} if they go on.`
      : ''
  return html`<div class="soft">${number(failures)} ${failures === 1 ? 'failure' : 'failures'}, the first ${moment(failing_since)}${next}</div>`
}

function buttons({ name, state, stop_reason }: Subscription): Markup {
  const at = (word: string) => `/subscriptions/${name}/${word}`
  const isGoing = state === 'active' || state === 'failing'
  const resume =
    stop_reason === 'position_expired'
      ? action({ path: at('resume'), label: 'Resume with the oldest kept', fields: { from: 'oldest' } })
      : action({ path: at('resume'), label: 'Resume' })
  return html`<div class="inline">
    ${isGoing ? action({ path: at('pause'), label: 'Pause', tone: 'quiet' }) : resume}
    ${action({ path: at('test'), label: 'Send a test', tone: 'quiet' })}
    <a class="button quiet" href="${at('roll')}">New secret…</a>
    <a class="button quiet" href="${at('remove')}">Remove…</a>
  </div>`
}

export function addForm(): Markup {
  return html`<form method="post" action="/subscriptions" class="inline subscribe">
      <label>Name <input name="name" required maxlength="63" pattern="[a-z0-9]([a-z0-9._\\-]*[a-z0-9])?" /></label>
      <label>URL <input name="url" type="url" required maxlength="2048" size="36" /></label>
      <label>Retry for (hours) <input name="retry_hours" inputmode="numeric" value="24" size="4" /></label>
      <label>Start with
        <select name="from">
          <option value="newest">changes from now on</option>
          <option value="oldest">the oldest change that is kept</option>
        </select></label>
      <label><input type="checkbox" name="complete" value="true" /> Complete results only</label>
      <details><summary>Only some results</summary><div class="inline">
        <label>Key <input name="key_name" maxlength="255" size="12" /></label>
        <label>Model <input name="model" maxlength="255" size="12" /></label>
        <label>State <select name="status">
          <option value="">any</option>${feedStatusNames.map((name) => html`<option>${name}</option>`)}
        </select></label>
        <label>Environment <select name="sandbox">
          <option value="">any</option><option value="false">live</option><option value="true">sandbox</option>
        </select></label>
        <label>Metadata contains <input name="metadata" placeholder='{"team": "ads"}' size="24" /></label>
      </div></details>
      <button>Subscribe</button>
    </form>`
}

/** Shows the secret of a subscription, once. */
export function secretShown({ name, secret }: { name: string; secret: string }): Markup {
  return card(
    `Secret of ${name}`,
    html`<p class="notice" role="status">Copy it now: it is not shown again. It signs the posts.</p>
      <p class="mono detail" id="secret">${secret}</p>`,
  )
}
