import type { Request, Response } from 'express'
import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'
import { badgeOf, type Tone } from '../../platform/pages/parts.ts'

/** Pieces that several pages of the developer console share. */

/** An open page stops refreshing after half an hour of a fetch every two seconds. */
export const maxPolls = 900

/** Answers with a page in the frame of this console. */
export type Show = (req: Request, res: Response, title: string, body: Markup) => void

const tones: Record<string, Tone> = {
  COMPLETED: 'good',
  delivered: 'good',
  FAILED: 'bad',
  failed: 'bad',
  IN_PROGRESS: 'warn',
  pending: 'warn',
}

export function badge(state: string): Markup {
  return badgeOf(state, tones[state])
}

/** The charge of a request: its price while reserved or settled, 0 once refunded and in the sandbox. */
export function chargeOf({ environment, status, cost }: { environment: string; status: string; cost: string }): string {
  return environment === 'live' && (isUnfinished(status) || status === 'COMPLETED') ? cost : '0'
}

export const isUnfinished = (status: string) => status === 'IN_QUEUE' || status === 'IN_PROGRESS'

export function accountLink(account: string): Markup {
  return html`<a href="/accounts/${encodeURIComponent(account)}">${account}</a>`
}

export function requestLink(id: string): Markup {
  return html`<a class="mono" href="/requests/${id}" title="${id}">${id.slice(0, 8)}</a>`
}
