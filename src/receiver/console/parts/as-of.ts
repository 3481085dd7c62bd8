import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/console-page.ts'
import { time } from '../../../platform/pages/parts.ts'

/** A receiver writes figures about every 20 s, so a standby without a change for this long is behind. */
const behindAfterMs = 120_000

/** A note below a list that was read from a standby: newer rows may be missing. */
export function asOfNote(asOf: Date | undefined, now: Date): Markup | string {
  if (asOf === undefined) return ''
  const isBehind = now.getTime() - asOf.getTime() > behindAfterMs
  return html`<p class="${isBehind ? 'problem' : 'soft'}" data-as-of>Read from the standby, whose last change is from ${time(asOf, 'seconds')}.${isBehind ? ' The standby is behind, so newer rows are missing here. The first page and the pages of requests and deliveries are read from the primary.' : ''}</p>`
}
