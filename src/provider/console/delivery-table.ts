import { html } from 'hono/html'
import { type Markup, badgeOf, table, moment, time, type Tone } from '../../platform/pages/parts.ts'
import type { DeliveryListing, Standing } from '../webhooks/delivery-history.ts'
import { accountLink, requestLink } from './parts.ts'

const standingTones: Record<Standing, Tone> = {
  waiting: '',
  sending: '',
  retrying: 'warn',
  delivered: 'good',
  'given up': 'bad',
  dropped: '',
}

export function standingBadge(standing: Standing): Markup {
  return badgeOf(standing, standingTones[standing])
}

const columns = ['Delivery', 'Request', 'Account', 'Host', 'State', 'Answers', 'Last answer', 'Made']

export function deliveryTable(deliveries: readonly DeliveryListing[], empty = 'No delivery.'): Markup {
  const rows = deliveries.map((delivery) => {
    const { id, request_id, account, url, host, created_at } = delivery
    const answers = delivery.ended.map(({ http_status: status }) => status ?? 'no answer').join(', ')
    return [
      html`<a class="mono" href="/deliveries/${id}" title="${id}">${id.slice(0, 8)}</a>`,
      request_id === null ? '—' : requestLink(request_id),
      html`<span class="cut short" title="${account}">${accountLink(account)}</span>`,
      html`<span class="cut short" title="${url}">${host}</span>`,
      html`<span class="words">${standingBadge(delivery.standing)} ${nextOf(delivery)}</span>`,
      html`<span class="words">${answers || 'none'}</span>`,
      lastAnswer(delivery),
      moment(created_at),
    ]
  })
  return table({ label: 'Webhook deliveries', columns, rows, empty })
}

function nextOf({ standing, due_at }: DeliveryListing): Markup | '' {
  if (standing !== 'retrying' && standing !== 'waiting') return ''
  return html`<span class="soft">next ${time(due_at, 'seconds')}</span>`
}

/** The status and the beginning of the last answer, or the reason why none arrived. */
function lastAnswer({ ended }: DeliveryListing): Markup {
  const last = ended.at(-1)
  if (last === undefined) return html`—`
  const text = answerText(last.detail)
  return html`<span class="cut answer" title="${text}">${last.http_status ?? ''} <bdi class="soft">${text}</bdi></span>`
}

/** A receiver's answer as text. Control and other invisible characters become dots. */
export function answerText(detail: string): string {
  return detail.replaceAll(/[^\P{C}\n\t]|[\u2028\u2029]/gu, '·')
}
