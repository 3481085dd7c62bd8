import type { Dialling, Poster } from '../../platform/outward/poster.ts'
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

/** https and public addresses; where this is no production, whatever listens on this machine too. */
export function judgeSubscriptionUrl(url: URL, { production }: { production: boolean }): Dialling {
  if (!production && isLoopback(url.hostname.replace(/^\[|\]$/g, ''))) return { kind: 'named' }
  const why = publicUrlProblem(url)
  return why === undefined ? { kind: 'public' } : { kind: 'refused', why }
}

/** Posts it once, signed as the provider signs its webhooks (spec, Events): a body that is sent again has the time of this attempt. */
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
  // What it says besides is thrown away.
  if (httpStatus !== undefined && (httpStatus < 200 || httpStatus > 299))
    return { outcome: 'refused', trouble: `it answered ${httpStatus}` }
  return { outcome: 'unreachable', trouble: detail }
}
