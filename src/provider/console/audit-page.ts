import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'
import { table, moment } from '../../platform/pages/parts.ts'
import { channelWords } from '../../platform/pages/tables.ts'
import type { AuditRow } from '../operating/audit.ts'
import { listPages } from './list-page.ts'

const actionWords: Readonly<Record<string, string>> = {
  key_create: 'created a key',
  key_revoke: 'revoked a key',
  credits_grant: 'granted credits',
  request_cancel: 'canceled a request',
  model_enable: 'switched a model on',
  model_disable: 'switched a model off',
  faults_set: 'set faults',
  faults_clear: 'cleared faults',
  generate: 'ran a model',
  test_webhook: 'sent a test webhook',
  resend: 'sent a webhook again',
}

export type AuditView = {
  rows: readonly AuditRow[]
  target: string | undefined
  older: string | undefined
  isFirst: boolean
}

/** The changes with their actors, newest first. */
export function auditPage({ rows, target, older, isFirst }: AuditView): Markup {
  const cells = rows.map(({ at, via, actor, action, target: on, detail }) => [
    moment(at),
    html`<span title="${action}">${actionWords[action] ?? action}</span>`,
    on === null ? '—' : html`<a class="mono" href="/audit?${new URLSearchParams({ target: on }).toString()}">${on}</a>`,
    factsOf(detail),
    actor,
    channelWords[via],
  ])
  const [aim, result] = [{ head: 'Target', kind: 'wide' } as const, { head: 'Result', kind: 'wide' } as const]
  const columns = ['Time', 'Action', aim, result, 'Actor', 'From']
  return html`<h1>Audit</h1>
    <section class="card">
      ${target === undefined ? html`<p class="soft">Every change made in this console and on the command line.</p>` : html`<p>Changes of <span class="mono">${target}</span>. <a href="/audit">Show all</a></p>`}
      ${table({ label: 'Audit', columns, rows: cells, empty: 'No change has been recorded.' })}
      ${listPages('/audit', { target }, { isFirst, older })}
    </section>`
}

function factsOf(detail: AuditRow['detail']): string {
  const facts = Object.entries(detail ?? {}).map(([name, fact]) => `${name} ${wordsOf(fact)}`)
  return facts.length === 0 ? 'done' : facts.join(', ')
}

function wordsOf(fact: unknown): string {
  if (Array.isArray(fact)) return fact.map(wordsOf).join(' and ')
  return typeof fact === 'string' ? fact : JSON.stringify(fact)
}
