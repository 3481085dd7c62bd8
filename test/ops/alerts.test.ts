import fs from 'node:fs/promises'
import path from 'node:path'
import { Counter } from 'prom-client'
import { beforeAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { z } from 'zod'
import { startPostgresProxy } from '../platform/support/postgres-proxy.ts'
import { withTestDatabase } from '../support/database.ts'
import { startTestReceiver } from '../support/receiver.ts'
import { deliver, failed, okAudio } from '../support/webhooks.ts'
import { withReceiver } from '../support/with-receiver.ts'

const root = path.resolve(import.meta.dirname, '../..')
const read = (file: string) => fs.readFile(path.join(root, file), 'utf8')

const annotationsSchema = z.strictObject({
  summary: z.string().max(60),
  description: z.string().regex(/\{\{ .*\$/),
  runbook: z.string(),
})
const ruleSchema = z.strictObject({
  alert: z.string().regex(/^Mediadock[A-Z]/),
  expr: z.string(),
  for: z.string().optional(),
  labels: z.strictObject({ severity: z.enum(['page', 'ticket']) }),
  annotations: annotationsSchema,
})
const rulesSchema = z.strictObject({
  groups: z.array(z.strictObject({ name: z.string(), rules: z.array(ruleSchema) })),
})
const testsSchema = z.object({
  tests: z.array(
    z.object({
      alert_rule_test: z.array(z.object({ alertname: z.string(), exp_alerts: z.array(z.unknown()).optional() })),
    }),
  ),
})
const gridSchema = z.object({ x: z.int().min(0), y: z.int().min(0), w: z.int().min(1), h: z.int().min(1) })
const targetSchema = z.object({
  refId: z.string(),
  expr: z.string(),
  datasource: z.object({ uid: z.literal('${datasource}') }),
})
const dashboardSchema = z.object({
  uid: z.string(),
  title: z.string(),
  schemaVersion: z.int().min(36),
  templating: z.object({ list: z.array(z.object({ name: z.string(), type: z.string() })) }),
  annotations: z.object({ list: z.array(z.object({ expr: z.string().optional() })) }),
  panels: z.array(
    z.object({
      id: z.int(),
      type: z.string(),
      title: z.string(),
      description: z.string().optional(),
      gridPos: gridSchema,
      targets: z.array(targetSchema).optional(),
    }),
  ),
})

/** Words of PromQL that are neither metrics nor labels. */
const keywords = new Set([
  'by',
  'without',
  'on',
  'ignoring',
  'and',
  'or',
  'unless',
  'offset',
  'bool',
  'group_left',
  'group_right',
  'inf',
  'nan',
])

/** The metrics that an expression asks for: what is left of its names when labels, ranges and functions are gone. */
function metricsIn(expr: string): string[] {
  const bare = expr
    .replace(/\{[^}]*\}/g, ' ')
    .replace(/\[[^\]]*\]/g, ' ')
    .replace(/\b(by|without|on|ignoring)\s*\([^)]*\)/g, ' ')
    .replace(/\boffset\s+\w+/g, ' ')
  return [...bare.matchAll(/([a-zA-Z_:][\w:]*)\s*(\(?)/g)].flatMap(([, name = '', call]) =>
    call === '(' || keywords.has(name.toLowerCase()) ? [] : [name],
  )
}

/** Each metric with the labels that it is read with: `name{label="value"}` of an expression. */
function selectorsIn(expr: string): { metric: string; labels: string[] }[] {
  return [...expr.matchAll(/([a-z]\w*)\{([^}]*)\}/g)].map(([, metric = '', inside = '']) => ({
    metric,
    labels: [...inside.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)].map(([, label = '']) => label),
  }))
}

let rules: z.infer<typeof ruleSchema>[]
let dashboard: z.infer<typeof dashboardSchema>
let metricsText: string

const seriesOf = (metric: string) =>
  metricsText.split('\n').filter((line) => line.startsWith(`${metric}{`) || line.startsWith(`${metric} `))
const typeOf = (metric: string) => new RegExp(`^# TYPE ${metric} (\\w+)$`, 'm').exec(metricsText)?.[1]
const isExported = (metric: string) =>
  typeOf(metric) !== undefined || typeOf(metric.replace(/_(bucket|sum|count)$/, '')) === 'histogram'

function expectExported(expr: string): void {
  const metrics = metricsIn(expr)
  expect(metrics, expr).not.toEqual([])
  for (const metric of metrics) expect(metric === 'up' || isExported(metric), `${metric} in ${expr}`).toBe(true)
  for (const { metric, labels } of selectorsIn(expr)) {
    const known = seriesOf(metric).join('\n')
    // Labels of the scrape are Prometheus' own.
    for (const label of labels)
      expect(
        ['job', 'instance'].includes(label) || known.includes(`${label}="`),
        `${label} of ${metric} in ${expr}`,
      ).toBe(true)
  }
}

beforeAll(async () => {
  rules = rulesSchema.parse(parse(await read('ops/prometheus-alerts.yml'))).groups.flatMap((group) => group.rules)
  dashboard = dashboardSchema.parse(JSON.parse(await read('ops/grafana-dashboard.json')))
})

it('every alert and panel queries a metric that a receiver exports', async () => {
  const { database, receiver, stop } = await withReceiver()
  try {
    expect((await deliver(receiver.webhookUrl, okAudio().body)).status).toBe(200)
    expect((await deliver(receiver.webhookUrl, failed().body, { secret: 'of somebody else' })).status).toBe(401)
    await database.sql`insert into mediadock.call_budgets (key_name, slots, slots_until, granted) values ('live', array[1], 0, true)`
    // Of a service that subscribed there is a series once something was posted to it.
    const posts = receiver.deps.registry.getSingleMetric('mediadock_subscription_posts_total')
    if (posts instanceof Counter) posts.inc({ name: 'gallery', outcome: 'accepted' })
    metricsText = await (await fetch(new URL('/metrics', receiver.internalUrl))).text()
  } finally {
    await stop()
  }
  for (const { expr } of rules) expectExported(expr)
  const targets = dashboard.panels.flatMap((panel) => panel.targets ?? [])
  for (const { expr } of targets) expectExported(expr)
  for (const { expr } of dashboard.annotations.list) if (expr !== undefined) expectExported(expr)
  // And what is not exported would be noticed.
  expect(metricsIn('sum by (le) (rate(a_total{x="y"}[5m])) / b > 2 and max(c offset 1h) unless on (k) d')).toEqual([
    'a_total',
    'b',
    'c',
    'd',
  ])
  expect(isExported('mediadock_no_such_total')).toBe(false)
  // As promtool's check of metrics has it: what is counted up ends in _total, and nothing else does.
  const types = [...metricsText.matchAll(/^# TYPE (\w+) (\w+)$/gm)]
  expect(types.length).toBeGreaterThan(20)
  for (const [, name = '', type] of types) expect(name.endsWith('_total'), name).toBe(type === 'counter')
})

describe('the alerts', () => {
  it("each have a runbook section with Means, Look, Do and Don't", async () => {
    const pages = ['docs/runbook/webhooks-and-results.md', 'docs/runbook/provider-calls.md']
    const texts = await Promise.all(pages.map(read))
    const sections = pages.flatMap((page, at) =>
      (texts[at] ?? '')
        .split(/^## (?=Mediadock)/m)
        .slice(1)
        .map((text) => ({ page, alert: text.split('\n', 1)[0] ?? '', text })),
    )
    expect(sections.map(({ page, alert }) => `${page}#${alert.toLowerCase()}`).toSorted()).toEqual(
      rules.map(({ annotations }) => annotations.runbook).toSorted(),
    )
    expect(sections.map(({ alert }) => alert).toSorted()).toEqual(rules.map(({ alert }) => alert).toSorted())
    for (const { alert, annotations } of rules)
      expect(annotations.runbook).toMatch(new RegExp(`#${alert.toLowerCase()}$`))
    for (const { alert, text } of sections)
      expect(text, alert).toMatch(/\*\*Means\.\*\* [^]+\*\*Look\.\*\* [^]+\*\*Do\.\*\*\s[^]+\*\*Don't\.\*\* /)
  })

  it('promtool makes each fire, and each stay silent', async () => {
    const tests = testsSchema
      .parse(parse(await read('ops/prometheus-alerts.test.yml')))
      .tests.flatMap((test) => test.alert_rule_test)
    for (const { alert } of rules) {
      const ofAlert = tests.filter(({ alertname }) => alertname === alert)
      expect(
        ofAlert.some(({ exp_alerts: expected }) => expected?.length === 1),
        `${alert} fires`,
      ).toBe(true)
      expect(
        ofAlert.some(({ exp_alerts: expected }) => expected === undefined),
        `${alert} does not`,
      ).toBe(true)
    }
  })
})

describe('the dashboard', () => {
  it('can be imported anywhere: its data source is a variable', () => {
    expect(dashboard.templating.list.map(({ name, type }) => `${name}: ${type}`)).toEqual([
      'datasource: datasource',
      'job: query',
      'instance: query',
    ])
    expect(dashboard.panels.filter(({ type }) => type === 'row').map(({ title }) => title)).toEqual([
      'Intake',
      'Landing',
      'Provider',
      'Archive and subscriptions',
      'Process',
    ])
  })

  it('has panels with titles that do not overlap', () => {
    const { panels } = dashboard
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
    for (const { type, title, description, targets } of panels) {
      if (type === 'row') continue
      expect(description, title).toBeTruthy()
      expect(new Set(targets?.map(({ refId }) => refId)).size, title).toBe(targets?.length)
    }
    const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, at) => `${x + (at % w)},${y + Math.floor(at / w)}`),
    )
    expect(new Set(cells).size).toBe(cells.length)
    expect(Math.max(...panels.map(({ gridPos: { x, w } }) => x + w))).toBe(24)
  })
})

it('a scrape while Postgres is frozen returns all metrics that need no Postgres, and postgres_up 0', async () => {
  const database = await withTestDatabase()
  const proxy = await startPostgresProxy(database.url)
  const receiver = await startTestReceiver({ databaseUrl: proxy.url })
  const scrape = async () => {
    const response = await fetch(new URL('/metrics', receiver.internalUrl))
    return { status: response.status, text: await response.text() }
  }
  try {
    const before = await scrape()
    expect(before.text).toMatch(/^mediadock_postgres_up 1$/m)
    expect(before.text).toMatch(/^mediadock_inbox_pending 0$/m)
    expect(before.text).toMatch(/^mediadock_deliveries_parked 0$/m)
    expect(before.text).toMatch(/^mediadock_reconcile_last_run_timestamp_seconds 0$/m)
    proxy.swallowAfter(0)
    expect((await deliver(receiver.webhookUrl, okAudio().body)).status).toBe(503)
    const { status, text } = await scrape()
    expect(status).toBe(200)
    expect(text).toMatch(/^mediadock_postgres_up 0$/m)
    expect(text).toMatch(/^mediadock_arrivals_total\{outcome="unavailable",reason="postgres_too_slow"\} 1$/m)
    expect(text).not.toMatch(/^mediadock_inbox_pending/m)
  } finally {
    proxy.passOn()
    proxy.cut()
    await receiver.stop()
  }
})
