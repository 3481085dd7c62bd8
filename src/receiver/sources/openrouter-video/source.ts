import { verifyInSteps, type Secret } from '../../../wire/signature.ts'
import type { Arrived, SourceKind, SourceVerification, Steps } from '../../domain/source.ts'
import { keyHeader } from '../answers.ts'
import { idIn } from '../ids.ts'
import { textSecrets } from '../secrets.ts'
import { fetchResult, submit } from './calls.ts'
import { parse } from './report.ts'

/** The videos of OpenRouter. */
export const openrouterVideo: SourceKind = {
  identify: idIn('X-OpenRouter-Idempotency-Key'),
  verify,
  parse,
  fetchResult,
  submit,
  promises: {
    signatureHeaders: ['x-openrouter-signature'],
    environmentOf: () => 'live',
    signed: true,
    idempotentSubmit: false,
    secrets: textSecrets,
    apiUrl: 'https://openrouter.ai/api/v1',
    linkHeaders: keyHeader,
  },
}

/** The header has the form of the first source. The signed bytes are the timestamp, a comma and the body. */
function* verify({ header, body }: Arrived, secrets: readonly Secret[], nowSeconds: number): Steps<SourceVerification> {
  const [signature, ...more] = header('x-openrouter-signature')
  if (signature === undefined) return { ok: false, cause: 'missing_header', timestampSeconds: undefined }
  if (more.length > 0) return { ok: false, cause: 'malformed_header', timestampSeconds: undefined }
  return yield* verifyInSteps(body, signature, secrets, nowSeconds, ',')
}
