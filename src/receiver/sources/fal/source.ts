import type { SourceKind } from '../../domain/source.ts'
import { cancel, fetchResult, submit } from './calls.ts'
import { parse } from './report.ts'
import { identify, publicKeysOf, verify } from './signature.ts'

/** The queue of fal.ai. */
export const fal: SourceKind = {
  identify,
  verify,
  parse,
  fetchResult,
  submit,
  cancel,
  promises: {
    signatureHeaders: ['x-fal-webhook-signature'],
    environmentOf: () => 'live',
    signed: true,
    idempotentSubmit: false,
    secrets: undefined,
    keySet: { url: 'https://rest.fal.ai/.well-known/jwks.json', keysIn: publicKeysOf },
    apiUrl: 'https://queue.fal.run',
  },
}
