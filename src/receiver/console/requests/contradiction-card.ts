import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { table, time, type Cells } from '../../../platform/pages/parts.ts'
import type { RequestDetail } from '../../queries/request-detail.ts'
import { badge, card, number, shortId } from '../parts/parts.ts'

const ends = { OK: 'COMPLETED', ERROR: 'FAILED', CANCELED: 'CANCELED' } as const

/** The ends that each side reported of a request, and the end that stands. Empty without a contradiction. */
export function contradictionCard(request: RequestDetail): Markup | '' {
  const { contradiction, status, confirmed_at, poll_outcome } = request
  if (!contradiction) return ''
  const why =
    confirmed_at === null
      ? html`The first end stands until the provider's own result decides. ${poll_outcome === 'not_found' ? 'No key that was tried knows this request at the provider, so it may stay undecided.' : 'Use “Ask the provider now” to decide at once.'}`
      : html`The provider's own result decides, and it was read at ${time(confirmed_at)}.`
  return card(
    'Contradiction',
    html`<p><b>${status} stands.</b> ${why}</p>
      ${table({
        label: 'Reported ends',
        columns: ['Who', 'Said', 'When', ''],
        rows: statements(request),
        empty: 'The contradicting deliveries were pruned after RETENTION_DAYS.',
      })}`,
  )
}

/** The mark of a contradiction. One that is decided needs no attention. */
export function contradictionBadge({ confirmed_at }: Pick<RequestDetail, 'confirmed_at'>): Markup {
  return badge('contradiction', confirmed_at === null ? 'warn' : '')
}

/** One row for each webhook that names an end, oldest first, then one for the provider's own result. */
function statements({ timeline, status, confirmed_at }: RequestDetail): Cells[] {
  const tone = confirmed_at === null ? 'warn' : ''
  const webhooks = timeline.flatMap((entry) =>
    entry.kind === 'delivery' && entry.delivery.status !== null ? [entry.delivery] : [],
  )
  const stands = (end: string) => (end === status ? badge('stands', 'good') : badge('not applied', tone))
  const said = webhooks.map(({ id, status: word, received_at, arrivals }): Cells => {
    const end = word === null ? '' : ends[word]
    const often = arrivals > 1 ? html` <span class="soft">×${number(arrivals)}</span>` : ''
    return [
      html`Webhook ${shortId('delivery', id)}${often}`,
      html`${badge(end)}${word === end ? '' : html` <span class="soft">(status ${word})</span>`}`,
      time(received_at),
      stands(end),
    ]
  })
  if (confirmed_at === null) return said
  return [...said, ["The provider's own result", badge(status), time(confirmed_at), stands(status)]]
}
