import type { SourceKind } from '../../domain/source.ts'
import { identify, secrets, verify } from '../standard-webhooks/signature.ts'
import { fetchResult, keyHeader, submit } from './calls.ts'
import { parse } from './report.ts'

/** Videos of the Gemini API, with the webhooks of a project, which are signed with Standard Webhooks. */
export const gemini: SourceKind = {
  identify,
  verify,
  parse,
  fetchResult,
  submit,
  promises: {
    signatureHeaders: ['webhook-signature'],
    environmentOf: () => 'live',
    signed: true,
    idempotentSubmit: false,
    secrets,
    apiUrl: 'https://generativelanguage.googleapis.com',
    linkHeaders: keyHeader,
    linkLifeSeconds: 2 * 86_400,
  },
}
