import { identify, verify } from '../standard-webhooks/signature.ts'
import { fetchResult, submit } from './calls.ts'
import { parse } from './report.ts'

/** The predictions of Replicate, whose webhooks are signed with Standard Webhooks. */
export const replicate = {
  identify,
  verify,
  parse,
  fetchResult,
  submit,
  promises: { signatureHeaders: ['webhook-signature'], environmentOf: () => undefined },
}
