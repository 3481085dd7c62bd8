import { fetchResult, submit } from './calls.ts'
import { parse } from './report.ts'
import { identify, verify } from './signature.ts'

/** The queue of fal.ai. */
export const fal = {
  identify,
  verify,
  parse,
  fetchResult,
  submit,
  promises: { signatureHeaders: ['x-fal-webhook-signature'], environmentOf: () => undefined },
}
