import { verifyInSteps, type Secret } from '../../../wire/signature.ts'
import { webhookIdPattern } from '../../domain/delivery.ts'
import type { Environment } from '../../domain/keys.ts'
import type { Arrived, Identity, SourceKind, SourceVerification, Steps } from '../../domain/source.ts'
import { parse } from './report.ts'
import { fetchResult } from './result.ts'
import { submit } from './submit.ts'

/** The API of spec/generation-queue-api.md, whose webhooks come to `POST /webhooks`. */
export const generationQueue: SourceKind = {
  identify,
  verify,
  parse,
  fetchResult,
  submit,
  promises: { signatureHeaders: ['x-service-signature'], environmentOf },
}

function identify({ header }: Pick<Arrived, 'header'>): Identity {
  const claimed = header('x-service-webhook-id')
  const [webhookId] = claimed
  if (webhookId !== undefined && claimed.length === 1 && webhookIdPattern.test(webhookId))
    return { ok: true, webhookId }
  const message = 'X-Service-Webhook-Id must be given once, as 1 to 255 visible ASCII characters'
  return { ok: false, claimed: webhookId, message }
}

function* verify({ header, body }: Arrived, secrets: readonly Secret[], nowSeconds: number): Steps<SourceVerification> {
  const [signature, ...more] = header('x-service-signature')
  if (signature === undefined) return { ok: false, cause: 'missing_header', timestampSeconds: undefined }
  if (more.length > 0) return { ok: false, cause: 'malformed_header', timestampSeconds: undefined }
  const verification = yield* verifyInSteps(body, signature, secrets, nowSeconds)
  if (!verification.ok) return verification
  // The header that is not signed only warns.
  const stated = header('x-service-timestamp')
  const timestampMismatch = stated.length > 0 && Number(stated.join()) !== verification.timestampSeconds
  return { ...verification, timestampMismatch }
}

/** From the prefix of the key (spec, Authentication 2). */
function environmentOf(apiKey: string): Environment | undefined {
  if (apiKey.startsWith('service_live_')) return 'live'
  if (apiKey.startsWith('service_test_')) return 'sandbox'
  return undefined
}
