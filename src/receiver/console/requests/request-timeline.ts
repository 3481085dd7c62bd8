import { html } from 'hono/html'
import { type Markup, time } from '../../../platform/pages/parts.ts'
import { defaultSourceName } from '../../domain/source.ts'
import { postponedBecause } from '../../on-call/poll-words.ts'
import type { RequestDetail, TimelineEntry } from '../../queries/request-detail.ts'
import { badge, code, duration, foreign, number, shortId } from '../parts/parts.ts'
import { contradictionBadge } from './both-sides-card.ts'
import { mediaCounts } from './request-words.ts'

type Step = { at: string; id: string; what: Markup; more?: Markup | undefined; theirs?: boolean }

/** All events of a request, oldest first, with the time between them. */
export function timeline(request: RequestDetail): Markup {
  const steps = stepsOf(request)
  return html`<ol class="timeline" data-rows>
    ${steps.map(
      ({ at, id, what, more, theirs }, place) =>
        html`<li class="${theirs ? 'theirs' : ''}" data-row="${id}">
          <div class="when">${time(at, at.slice(0, 10) === steps[place - 1]?.at.slice(0, 10) ? 'clock' : 'precise')}${since(steps[place - 1]?.at, at)}</div>
          <div class="what">${what}${theirs ? html` <span class="soft">(the provider's clock)</span>` : ''}${more === undefined ? '' : html`<div class="soft">${more}</div>`}</div>
        </li>`,
    )}
  </ol>`
}

function since(before: string | undefined, at: string): Markup | '' {
  const passed = before === undefined ? 0 : Date.parse(at) - Date.parse(before)
  return passed < 1000 ? '' : html` <span class="soft">+${duration(passed)}</span>`
}

function stepsOf(request: RequestDetail): Step[] {
  const arrived = new Set(
    request.timeline.flatMap((entry) =>
      entry.kind === 'arrival' && isFirst(entry) ? [entry.arrival.delivery_id] : [],
    ),
  )
  const steps: Step[] = []
  for (const [place, entry] of request.timeline.entries()) {
    // Its arrival is listed already.
    if (entry.kind === 'delivery' && arrived.has(entry.delivery.id)) continue
    // All media arrived together and share one line.
    if (entry.kind === 'media' && request.timeline[place - 1]?.kind === 'media') continue
    steps.push({ at: entry.at, id: `${entry.kind}-${place}`, ...stepOf(entry, request) })
  }
  return steps
}

function isFirst({ arrival }: Extract<TimelineEntry, { kind: 'arrival' }>): boolean {
  return arrival.outcome === 'accepted' || arrival.outcome === 'parked'
}

function stepOf(entry: TimelineEntry, request: RequestDetail): Omit<Step, 'at' | 'id'> {
  switch (entry.kind) {
    case 'submit':
      return { what: html`<b>Submit received</b>` }
    case 'tracked':
      return trackedStep(request)
    case 'provider_created':
      return { what: html`<b>Created at the provider</b>`, theirs: true }
    case 'provider_completed':
      return { what: html`<b>Ended at the provider</b>`, theirs: true }
    case 'arrival':
      return arrivalStep(entry)
    case 'delivery': {
      const { id, status, key_name } = entry.delivery
      return {
        what: html`<b>Webhook stored</b> as delivery ${shortId('delivery', id)}`,
        more: html`status ${status ?? 'not readable'}, key ${foreign(key_name, 40)}`,
      }
    }
    case 'attempt': {
      const { outcome, detail, delivery_id } = entry.attempt
      const ended = outcome === 'contradiction' ? contradictionBadge(request) : badge(outcome)
      return {
        what: html`<b>Webhook processed</b> ${ended} delivery ${shortId('delivery', delivery_id)}`,
        more: detail === null ? undefined : foreign(detail, 300),
      }
    }
    case 'poll':
      return pollStep(entry)
    case 'landed':
      return {
        what: html`<b>Landed here</b> ${badge(entry.status)} ${entry.source === null ? '' : entry.source === 'webhook' ? 'by its webhook' : "by the provider's result"}`,
      }
    case 'media':
      return {
        what: html`<b>${mediaWords(request)}</b> ${request.media_complete ? 'known: complete' : 'known from the webhook; there may be more'}`,
      }
    default:
      return entry satisfies never
  }
}

function trackedStep({ submit, source_name, tracked_at, landed_at }: RequestDetail): Omit<Step, 'at' | 'id'> {
  if (submit !== null) return { what: html`<b>Accepted by the provider</b>; tracked from here on` }
  if (tracked_at === landed_at) return { what: html`<b>First seen</b> through its webhook; no service had tracked it` }
  // Only webhooks of other sources name a request before its end.
  const how = source_name === defaultSourceName ? '' : ', or named by a webhook before its end'
  return { what: html`<b>Tracked</b>: submitted by another service${how}` }
}

function arrivalStep({ arrival }: Extract<TimelineEntry, { kind: 'arrival' }>): Omit<Step, 'at' | 'id'> {
  const { outcome, reason, status, delivery_id, webhook_id, key_name, remote, ack_ms, folded } = arrival
  const stored = outcome !== 'refused' && outcome !== 'unavailable'
  return {
    what: html`<b>Webhook arrived</b> ${badge(outcome)} ${reason === null ? '' : code(reason)} ${stored ? html`delivery ${shortId('delivery', delivery_id)}` : ''}${folded > 0 ? html` and ${number(folded)} similar ones` : ''}`,
    more: html`webhook id ${foreign(webhook_id, 40)}, key ${foreign(key_name, 40)}, from ${foreign(remote, 60)}; ${status === 0 ? 'not answered' : html`answered ${status} in ${number(ack_ms, { decimals: 1, unit: 'ms' })}`}`,
  }
}

function pollStep({ poll }: Extract<TimelineEntry, { kind: 'poll' }>): Omit<Step, 'at' | 'id'> {
  const { outcome, detail, key_name } = poll
  if (outcome === 'postponed')
    return { what: html`<b>Poll postponed</b>`, more: foreign(postponedBecause(detail ?? ''), 300) }
  const key = key_name === null ? '' : html` with key ${foreign(key_name, 40)}`
  return { what: html`<b>Polled</b>${key} ${badge(outcome)}`, more: detail === null ? undefined : foreign(detail, 300) }
}

function mediaWords({ media }: RequestDetail): string {
  const groups = Map.groupBy(media, ({ kind }) => kind)
  return [...groups].map(([kind, { length }]) => `${length} ${mediaCounts[kind][length === 1 ? 0 : 1]}`).join(', ')
}
