import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { createPool, type Pool } from '../../../src/platform/postgres/postgres.ts'
import type { Problem } from '../../../src/receiver/domain/problem.ts'
import { noteIssues } from '../../../src/receiver/on-call/issues.ts'
import { usualServers, withTestDatabase, type TestDatabase } from '../../support/database.ts'
import { eventually } from '../../support/eventually.ts'
import { startTestReceiver } from '../../support/receiver.ts'
import { deliver } from '../../support/webhooks.ts'
import { call } from '../api/calls.ts'

const problem = (cause: string, more: Partial<Problem> = {}): Problem => ({
  severity: 'warning',
  text: `about ${cause}`,
  cause,
  href: '/',
  ...more,
})
const begun = Date.parse('2026-03-04T03:00:00Z')
const at = (seconds: number) => new Date(begun + seconds * 1000)

describe.each(usualServers)('problems kept as issues, on the %s server', (server) => {
  let database: TestDatabase
  let pool: Pool
  beforeEach(async () => {
    database = await withTestDatabase(server)
    pool = createPool({ url: database.url, max: 3 })
    onTestFinished(() => pool.close())
  })
  const note = (seconds: number, ...problems: Problem[]) =>
    noteIssues(pool.db, problems, { now: at(seconds), tells: true })
  const kept = async () =>
    (
      await database.sql`select cause, severity, count, peak, untold, closed_at is not null as closed, opened_at from mediadock.issues order by id`
    ).map(({ opened_at, cause, severity, count, peak, untold, closed }) => ({
      cause,
      severity,
      count,
      peak,
      untold,
      closed,
      opened: (Date.parse(opened_at) - begun) / 1000,
    }))
  const told = () => database.sql`update mediadock.issues set untold = null`

  it('opens an issue once, updates it, makes it worse, and closes it a minute after its problem', async () => {
    expect(await note(0, problem('parked:not_json', { count: 3 }))).toEqual({ opened: 1, closed: 0 })
    expect(await note(10, problem('parked:not_json', { count: 4 }))).toEqual({ opened: 0, closed: 0 })
    expect(await kept()).toEqual([
      { cause: 'parked:not_json', severity: 'warning', count: 4, peak: 4, untold: 'opened', closed: false, opened: 0 },
    ])
    await told()
    await note(20, problem('parked:not_json', { count: 9 }))
    expect((await kept())[0]).toMatchObject({ untold: null })
    await note(30, problem('parked:not_json', { count: 10 }))
    expect((await kept())[0]).toMatchObject({ untold: 'worsened', peak: 10 })
    await told()
    await note(40, problem('parked:not_json', { severity: 'critical', count: 2 }))
    expect((await kept())[0]).toMatchObject({ untold: 'worsened', severity: 'critical', count: 2, peak: 10 })
    await told()
    // A problem that comes and goes is one issue.
    expect(await note(95)).toEqual({ opened: 0, closed: 0 })
    expect(await note(101)).toEqual({ opened: 0, closed: 1 })
    expect((await kept())[0]).toMatchObject({ untold: 'closed', closed: true })
    expect(await note(110, problem('parked:not_json'))).toEqual({ opened: 1, closed: 0 })
    expect(await kept()).toHaveLength(2)
  })

  it('opens one issue and posts one notice when two replicas see a problem at once', async () => {
    const problems = Array.from({ length: 20 }, (_, n) => problem(`kind:${n}`))
    const opened = await Promise.all([problems, problems.toReversed(), problems].map((some) => note(0, ...some)))
    expect(opened.reduce((sum, one) => sum + one.opened, 0)).toBe(20)
    expect(await kept()).toHaveLength(20)
    const closed = await Promise.all([1, 2, 3].map(() => note(100)))
    expect(closed.reduce((sum, one) => sum + one.closed, 0)).toBe(20)
  })

  it('posts nothing for severity notice, or for a muted issue until it becomes more severe', async () => {
    await note(0, problem('strangers', { severity: 'notice', count: 200 }), problem('overdue', { count: 5 }))
    await database.sql`update mediadock.issues set muted_until = ${at(3600)}, untold = null where cause = 'overdue'`
    await note(10, problem('strangers', { severity: 'notice', count: 90_000 }), problem('overdue', { count: 500 }))
    expect((await kept()).map(({ untold }) => untold)).toEqual([null, null])
    await note(200)
    expect((await kept()).map(({ untold, closed }) => [untold, closed])).toEqual([
      [null, true],
      [null, true],
    ])
    // A mute belongs to the cause, so it outlasts the issue.
    await note(300, problem('overdue', { count: 5 }))
    expect((await kept()).at(-1)).toMatchObject({ untold: null })
    await note(310, problem('overdue', { severity: 'critical', count: 5 }))
    expect((await kept()).at(-1)).toMatchObject({ untold: 'worsened', severity: 'critical' })
  })
})

it('posts a notice to ALERT_WEBHOOK_URL from one of two replicas, retries it, and shows it in the metrics', async () => {
  const database = await withTestDatabase()
  const texts: string[] = []
  let refusals = 1
  const slack = http.createServer((req, res) => {
    let body = ''
    req.on('data', (chunk: Buffer) => (body += chunk.toString()))
    req.on('end', () => {
      if (refusals > 0) {
        refusals -= 1
        return res.writeHead(500).end()
      }
      texts.push(JSON.parse(body).text)
      return res.end('ok')
    })
  })
  slack.listen(0, '127.0.0.1')
  await once(slack, 'listening')
  onTestFinished(() => void slack.close())
  const alertWebhookUrl = `http://127.0.0.1:${(slack.address() as AddressInfo).port}/services/secret`
  const settings = { alertWebhookUrl, webhookPublicUrl: 'https://hooks.example.com/webhooks' }
  const receiver = await startTestReceiver({ databaseUrl: database.url, settings })
  onTestFinished(() => receiver.stop())
  const other = await startTestReceiver({ databaseUrl: database.url, settings })
  onTestFinished(() => other.stop())
  await deliver(receiver.webhookUrl, Buffer.from('<!channel> & no JSON'))
  await eventually(
    async () => (await database.sql`select from mediadock.deliveries where parked_reason is not null`).length === 1,
  )
  for (const one of [receiver, other]) one.deps.wake('issues')
  await eventually(() => texts.length > 0)
  expect(texts).toEqual([
    expect.stringMatching(
      /^\[warning\] mediadock hooks\.example\.com: 1 delivery parked in the last hour: not JSON\.$/,
    ),
  ])
  const stats = await call(receiver, 'GET /api/stats')
  const [issue] = stats.json.issues
  expect(issue).toMatchObject({ cause: 'parked:not_json', state: 'open', count: 1 })

  const muted = await call(receiver, `POST /api/issues/${issue.id}/mute`, { body: { minutes: 60 } })
  expect(muted.status).toBe(200)
  expect((await call(other, 'GET /api/issues?state=muted')).json.data).toHaveLength(1)
  expect((await call(other, 'POST /api/issues/999/mute', { body: { minutes: 60 } })).status).toBe(404)
  expect((await database.sql`select from mediadock.audit where action = 'mute_issue'`).length).toBe(1)
})
