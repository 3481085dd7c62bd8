import { verifyInSteps, type Secret } from '../../../wire/signature.ts'
import type { Environment } from '../../domain/environment.ts'
import type { SourceKind, SourceVerification, Steps, Webhook } from '../../domain/source.ts'
import { idIn, readHeaders, textSecrets } from '../signatures.ts'
import { fetchResult } from './result.ts'
import { submit } from './submit.ts'
import { parse } from './to-report.ts'

/** The API of spec/generation-queue-api.md, whose webhooks come to `POST /webhooks`. */
export const generationQueue: SourceKind = {
  identify: idIn('X-Service-Webhook-Id'),
  verify,
  parse,
  fetchResult,
  submit,
  signatureHeaders: ['x-service-signature'],
  environmentOf,
  signed: true,
  idempotentSubmit: true,
  secrets: textSecrets,
}

function* verify({ header, body }: Webhook, secrets: readonly Secret[], nowSeconds: number): Steps<SourceVerification> {
  const sent = readHeaders(header, { 'x-service-signature': /^/ })
  if (!Array.isArray(sent)) return sent
  const verification = yield* verifyInSteps(body, sent.join(), secrets, nowSeconds)
  if (!verification.ok) return verification
  // X-Service-Timestamp is not signed. A difference is counted, not refused.
  const stated = header('x-service-timestamp')
  const timestampMismatch = stated.length > 0 && Number(stated.join()) !== verification.timestampSeconds
  return { ...verification, timestampMismatch }
}

/** From the prefix of the key (spec, Authentication 2). */
function environmentOf(apiKey: string | undefined): Environment | undefined {
  if (apiKey?.startsWith('service_live_')) return 'live'
  if (apiKey?.startsWith('service_test_')) return 'sandbox'
  return undefined
}
