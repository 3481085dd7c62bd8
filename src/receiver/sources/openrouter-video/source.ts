import { verifyInSteps, type Secret } from '../../../wire/signature.ts'
import { webhookIdPattern } from '../../domain/delivery.ts'
import type { Arrived, Identity, SourceVerification, Steps } from '../../domain/source.ts'
import { fetchResult, submit } from './calls.ts'
import { parse } from './report.ts'

/** The videos of OpenRouter. */
export const openrouterVideo = {
  identify,
  verify,
  parse,
  fetchResult,
  submit,
  promises: { signatureHeaders: ['x-openrouter-signature'], environmentOf: () => undefined },
}

function identify({ header }: Pick<Arrived, 'header'>): Identity {
  const claimed = header('x-openrouter-idempotency-key')
  const [webhookId] = claimed
  if (webhookId !== undefined && claimed.length === 1 && webhookIdPattern.test(webhookId))
    return { ok: true, webhookId }
  const message = 'X-OpenRouter-Idempotency-Key must be given once, as 1 to 255 visible ASCII characters'
  return { ok: false, claimed: webhookId, message }
}

/** The header has the form of the first source. The signed bytes are the timestamp, a comma and the body. */
function* verify({ header, body }: Arrived, secrets: readonly Secret[], nowSeconds: number): Steps<SourceVerification> {
  const [signature, ...more] = header('x-openrouter-signature')
  if (signature === undefined) return { ok: false, cause: 'missing_header', timestampSeconds: undefined }
  if (more.length > 0) return { ok: false, cause: 'malformed_header', timestampSeconds: undefined }
  return yield* verifyInSteps(body, signature, secrets, nowSeconds, ',')
}
