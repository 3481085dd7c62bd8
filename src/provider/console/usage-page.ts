import type { Express } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import type { Markup } from '../../platform/pages/console-page.ts'
import { numbers, table } from '../../platform/pages/parts.ts'
import type { Catalog } from '../catalog/catalog-model.ts'
import { environments } from '../domain/schema.ts'
import type { ConsoleDeps } from './actions.ts'
import { barChart } from './bar-chart.ts'
import { choice, choiceOf, filtersIn, textSchema } from './filter-fields.ts'
import { linkTo } from './list-page.ts'
import { rowsShown } from './newest-first.ts'
import type { Show } from './parts.ts'
import {
  usageRows,
  readUsage,
  readUsageLines,
  type Span,
  spans,
  type Usage,
  type UsageAt,
  type UsageCounts,
  type UsageLine,
  type UsageOf,
} from './usage-reads.ts'

const usageSchema = z.object({
  account: textSchema,
  model: textSchema,
  environment: choiceOf(environments),
  per: z.enum(['day', 'hour'], 'must be day or hour').default('day'),
})
type WantedUsage = z.infer<typeof usageSchema>

export function showUsage(app: Express, { db, catalog, clock }: ConsoleDeps, show: Show): void {
  const filterOf = ({ per: span, ...wanted }: WantedUsage) => ({ span, ...wanted, now: clock() })
  app.get('/usage', async (req, res) => {
    const wanted = filtersIn(req, usageSchema)
    show(req, res, 'Usage', usagePage(await readUsage(db, filterOf(wanted)), wanted, catalog()))
  })
  app.get('/usage.csv', async (req, res) => {
    const wanted = filtersIn(req, usageSchema)
    const { lines, isWhole } = await readUsageLines(db, filterOf(wanted))
    // The name of the file is the only place to mark missing lines: a reader of the file does not see the page.
    const name = `usage-by-${wanted.per}${isWhole ? '' : '-incomplete'}.csv`
    res.set('cache-control', 'no-store').attachment(name).type('text/csv').send(csvOf(lines))
  })
}

function usagePage(usage: Usage, wanted: WantedUsage, catalog: Catalog): Markup {
  const { account, per } = wanted
  const { steps, completeFrom } = usage
  const { steps: number } = spans[per]
  return html`<h1>Usage</h1>
    <form class="inline" method="get" action="/usage">
      <label>Account <input name="account" value="${account}" /></label>
      ${choice('model', wanted.model, [...catalog.keys()])}${choice('environment', wanted.environment, environments)}
      <label>
        Range
        <select name="per">
          ${(['day', 'hour'] as const).map((each) => html`<option value="${each}" ${each === per ? html`selected` : ''}>${spans[each].steps} ${each}s</option>`)}
        </select>
      </label>
      <label><button>Show</button></label>
    </form>
    ${
      completeFrom === undefined
        ? ''
        : html`<p class="notice" role="status">This page reads at most ${count(usageRows)} requests, so it begins at ${shownAt(completeFrom, per)} UTC. Choose an account to see further back.</p>`
    }
    <section class="card">
      <p class="soft">Requests submitted in the last ${number} ${per}s (UTC), by outcome. Credits are for completed requests of live keys. <a href="${linkTo('/usage.csv', wanted)}">Download as CSV</a></p>
      ${steps.length === 0 ? html`<p class="empty">This ${per} alone has more requests than this page reads.</p>` : charts(steps, per)}
    </section>
    <section class="card">
      <h2>By model</h2>
      ${ofTable('By model', 'Model', usage.models, (model) => linkTo('/usage', { ...wanted, model }))}
    </section>
    <section class="card">
      <h2>By account</h2>
      ${usage.accounts.length < rowsShown ? '' : html`<p class="soft">The ${rowsShown} with the most requests.</p>`}
      ${ofTable('By account', 'Account', usage.accounts, (name) => linkTo('/usage', { ...wanted, account: name }))}
    </section>`
}

function charts(steps: readonly UsageAt[], per: Span): Markup {
  const ends = { from: shownAt(steps[0]?.from ?? '', per), until: shownAt(steps.at(-1)?.from ?? '', per) }
  const [all, failed] = [sum(steps.map(({ requests }) => requests)), sum(steps.map((step) => step.failed))]
  const most = (values: number[]) => `${count(Math.max(...values))} in ${per === 'day' ? 'a day' : 'an hour'}`
  const columns = [`${per === 'day' ? 'Day' : 'Hour'} (UTC)`, ...countColumns]
  const rows = steps.toReversed().map((step) => [shownAt(step.from, per), ...countCells(step)])
  return html`<div class="usage">
    ${barChart({
      label: `Requests: ${count(all)}, of which ${count(failed)} failed`,
      most: most(steps.map(({ requests }) => requests)),
      bars: steps.map((step) => ({
        words: `${shownAt(step.from, per)}: ${count(step.requests)} requests, ${count(step.failed)} failed`,
        value: step.requests,
        bad: step.failed,
      })),
      ...ends,
    })}
    ${barChart({
      label: 'Credits spent',
      most: most(steps.map(({ credits }) => Number(credits))),
      bars: steps.map(({ from, credits }) => ({
        words: `${shownAt(from, per)}: ${count(Number(credits))} credits`,
        value: Number(credits),
      })),
      ...ends,
    })}
    </div>
    <details><summary>As a table</summary>${table({ label: 'Usage, as a table', columns, rows })}</details>`
}

const countColumns = numbers('Requests', 'Completed', 'Failed', 'Canceled', 'Credits')

function countCells({ requests, completed, failed, canceled, credits }: UsageCounts): (string | Markup)[] {
  const wrong = failed === 0 ? '0' : html`<span class="failed">${count(failed)}</span>`
  return [count(requests), count(completed), wrong, count(canceled), count(Number(credits))]
}

function ofTable(label: string, head: string, rows: readonly UsageOf[], linkTo: (name: string) => string): Markup {
  const listed = rows.map((row) => [html`<a href="${linkTo(row.name)}">${row.name}</a>`, ...countCells(row)])
  return table({ label, columns: [head, ...countColumns], rows: listed, empty: 'No request in this time.' })
}

function shownAt(instant: string, per: Span): string {
  return per === 'day' ? instant.slice(0, 10) : `${instant.slice(5, 10)} ${instant.slice(11, 16)}`
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}

function count(value: number): string {
  return value.toLocaleString('en-US', { maximumFractionDigits: 6 }).replaceAll(',', '\u202f')
}

const csvHeads = [
  'from',
  'account',
  'model',
  'environment',
  'requests',
  'completed',
  'failed',
  'canceled',
  'credits',
] as const

function csvOf(lines: readonly UsageLine[]): string {
  const rows = lines.map((line) => csvHeads.map((head) => csvField(String(line[head]))).join(','))
  return `${[csvHeads.join(','), ...rows].join('\r\n')}\r\n`
}

/** Quotes a name, and keeps a spreadsheet from reading it as a formula. */
function csvField(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe
}
