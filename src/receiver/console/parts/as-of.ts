import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { time } from './parts.ts'

/** Each receiver writes its figures once a minute: a standby that has heard of nothing for longer is behind. */
const behindAfterMs = 120_000

/** Under a list that comes from a standby: what is newer than this may be missing. */
export function asOfNote(asOf: Date | undefined, now: Date): Markup | string {
  if (asOf === undefined) return ''
  const isBehind = now.getTime() - asOf.getTime() > behindAfterMs
  return html`<p class="${isBehind ? 'problem' : 'soft'}" data-as-of>Read from the standby, whose last change is of ${time(asOf, 'seconds')}.${isBehind ? ' It is behind: what came since is missing here. The first page, and the page of each request and delivery, are read from the primary.' : ''}</p>`
}
