import type { Request, Response } from 'express'
import { html } from 'hono/html'
import { type Markup, badgeOf, type Tone } from '../../platform/pages/parts.ts'

/** Pieces that several pages of the developer console share. */

/** Answers with a page in the frame of this console. */
export type Show = (req: Request, res: Response, title: string, body: Markup) => void

const tones: Record<string, Tone> = {
  COMPLETED: 'good',
  FAILED: 'bad',
  IN_PROGRESS: 'warn',
}

export function badge(state: string): Markup {
  return badgeOf(state, tones[state])
}

/** The charge of a request: its price while reserved or settled, 0 once refunded and in the sandbox. */
export function chargeOf({ environment, status, cost }: { environment: string; status: string; cost: string }): string {
  return environment === 'live' && (isUnfinished(status) || status === 'COMPLETED') ? cost : '0'
}

export const isUnfinished = (status: string) => status === 'IN_QUEUE' || status === 'IN_PROGRESS'

/** The attributes with which a part of a page fetches itself again. A failed fetch leaves it as it is. */
export function refreshedFrom(path: string): Markup {
  return html`hx-get="${path}" hx-trigger="every 2s" hx-swap="outerMorph" hx-sync="this:drop" hx-status:4xx="swap:none" hx-status:5xx="swap:none"`
}

export function accountPath(account: string): string {
  return `/accounts/${encodeURIComponent(account)}`
}

export function accountLink(account: string): Markup {
  return html`<a href="${accountPath(account)}">${account}</a>`
}

export function requestLink(id: string): Markup {
  return html`<a class="mono" href="/requests/${id}" title="${id}">${id.slice(0, 8)}</a>`
}
