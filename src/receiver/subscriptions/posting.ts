import type { Poster } from '../../platform/outward/poster.ts'
import type { Dialling } from '../../platform/outward/public-url.ts'
import { publicUrlProblem } from '../../platform/outward/public-url.ts'
import { version } from '../../platform/release.ts'
import { isLoopback } from '../../platform/settings.ts'
import { sign } from '../../wire/signature.ts'

export type ChangePost = { url: string; secret: string; webhookId: string; body: string }

export type ChangePostEnd =
  | { outcome: 'accepted' }
  | { outcome: 'refused' | 'unreachable'; trouble: string }
  | { outcome: 'cut' }

export type PostingDeps = { poster: Poster; clock: () => Date }

/** Allows https and public addresses; outside of production also this machine. */
export function judgeSubscriptionUrl(url: URL, { production }: { production: boolean }): Dialling {
  if (!production && isLoopback(url.hostname.replace(/^\[|\]$/g, ''))) return { kind: 'named' }
  const why = publicUrlProblem(url)
  return why === undefined ? { kind: 'public' } : { kind: 'refused', why }
}

/** Posts a change once, signed like the provider's webhooks (spec, Events), with the time of this attempt. */
export async function postChange(
  { poster, clock }: PostingDeps,
  { url, secret, webhookId, body }: ChangePost,
  cut: AbortSignal,
): Promise<ChangePostEnd> {
  const bytes = Buffer.from(body)
  const t = Math.floor(clock().getTime() / 1000)
  const headers = {
    'content-type': 'application/json',
    'user-agent': `mediadock/${version}`,
    'x-service-webhook-id': webhookId,
    'x-service-timestamp': String(t),
    'x-service-signature': sign(bytes, secret, t),
  }
  const { ok, httpStatus, detail } = await poster.post({ url, headers, body: bytes }, cut)
  if (ok) return { outcome: 'accepted' }
  if (cut.aborted) return { outcome: 'cut' }
  // The body of the answer is ignored.
  if (httpStatus !== undefined && (httpStatus < 200 || httpStatus > 299))
    return { outcome: 'refused', trouble: `the service answered ${httpStatus}` }
  return { outcome: 'unreachable', trouble: detail }
}
