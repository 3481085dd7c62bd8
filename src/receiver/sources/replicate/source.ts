import type { SourceKind } from '../../domain/source.ts'
import { identify, secrets, verify } from '../standard-webhooks/signature.ts'
import { cancel, fetchResult, submit } from './calls.ts'
import { parse } from './report.ts'

/** The predictions of Replicate, whose webhooks are signed with Standard Webhooks. */
export const replicate: SourceKind = {
  identify,
  verify,
  parse,
  fetchResult,
  submit,
  cancel,
  promises: {
    signatureHeaders: ['webhook-signature'],
    environmentOf: () => 'live',
    signed: true,
    idempotentSubmit: false,
    secrets,
    apiUrl: 'https://api.replicate.com/v1',
    linkLifeSeconds: 3600,
  },
}
