import type { Request, Response } from 'express'
import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'

/** Pieces that several pages of the developer console share. */

/** Longer texts are cut on a page. */
export const shownCharacters = 64 * 1024

/** An open page stops refreshing after half an hour of a fetch every two seconds. */
export const maxPolls = 900

/** Answers with a page in the frame of this console. */
export type Show = (req: Request, res: Response, title: string, body: Markup) => void

const tones: Record<string, string> = {
  COMPLETED: 'good',
  delivered: 'good',
  FAILED: 'bad',
  failed: 'bad',
  IN_PROGRESS: 'warn',
  pending: 'warn',
}

export function badge(state: string): Markup {
  return html`<span class="badge ${tones[state] ?? ''}">${state}</span>`
}

export function time(instant: string | null): Markup {
  return instant === null ? html`—` : html`<time datetime="${instant}">${instant.slice(0, 19).replace('T', ' ')}</time>`
}

/** A moment in a list. assets/times.js shows how long ago it was, unless exact times are switched on. */
export function moment(instant: string | null): Markup {
  if (instant === null) return html`—`
  const text = instant.slice(0, 19).replace('T', ' ')
  return html`<time datetime="${instant}" title="${instant}" data-ago>${text}</time>`
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
