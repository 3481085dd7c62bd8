import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { linkTo } from '../../../platform/pages/filters.ts'
import { moment, table, type Row } from '../../../platform/pages/parts.ts'
import { defaultPageItems } from '../../domain/page-limits.ts'
import type { RefusedSubmit } from '../../submitting/refusals.ts'
import { card, foreign } from './parts.ts'

/** The submits that the provider refused in the last hour. Their metadata shows whose they are. Empty without any. */
export function refusedSubmitsCard(submits: readonly RefusedSubmit[]): Markup | '' {
  if (submits.length === 0) return ''
  const all = submits.length < defaultPageItems ? '' : html`<p class="soft">The newest ${defaultPageItems}.</p>`
  return card(
    'Refused submits',
    html`${all}${table({
      label: 'Refused submits',
      columns: [
        'Refused',
        'Answer',
        'Idempotency-Key',
        'Model',
        { head: 'Key', kind: 'minor' },
        'Metadata of the caller',
      ],
      rows: submits.map(submitRow),
    })}`,
  )
}

function submitRow({ idempotency_key: id, refused_at, ...submit }: RefusedSubmit): Row {
  const { status, code, message, model, key_name, metadata } = submit
  const found = linkTo('/search', { q: id })
  return {
    id,
    cells: [
      moment(refused_at),
      html`${status} ${foreign(code, 40)}
        ${message === null ? '' : html`<div class="soft">${foreign(message, 120)}</div>`}`,
      html`<a class="mono" href="${found}" title="${id}" data-copy="${id}">${id.slice(0, 8)}</a>`,
      foreign(model, 28),
      foreign(key_name, 18),
      foreign(metadata, 80),
    ],
  }
}
