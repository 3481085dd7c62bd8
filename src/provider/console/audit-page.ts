import { html } from 'hono/html'
import { linkTo, type Markup, moment, table } from '../../platform/pages/parts.ts'
import type { AuditRow } from '../operating/commands.ts'

/** The changes with their actors, newest first. */
export function auditPage(rows: readonly AuditRow[], target: string | undefined, pages: Markup): Markup {
  const cells = rows.map(({ at, via, actor, action, target: on, detail }) => [
    moment(at),
    action,
    on === null ? '—' : html`<a class="mono" href="${linkTo('/audit', { target: on })}">${on}</a>`,
    Object.entries(detail ?? {})
      .map(([name, fact]) => `${name} ${typeof fact === 'string' ? fact : JSON.stringify(fact)}`)
      .join(', '),
    actor,
    via,
  ])
  const [aim, result] = [{ head: 'Target', kind: 'wide' } as const, { head: 'Result', kind: 'wide' } as const]
  const columns = ['Time', 'Action', aim, result, 'Actor', 'From']
  return html`<h1>Audit</h1>
    <section class="card">
      ${target === undefined ? html`<p class="soft">Every change made in this console and on the command line.</p>` : html`<p>Changes of <span class="mono">${target}</span>. <a href="/audit">Show all</a></p>`}
      ${table({ label: 'Audit', columns, rows: cells, empty: 'No change has been recorded.' })}
      ${pages}
    </section>`
}
