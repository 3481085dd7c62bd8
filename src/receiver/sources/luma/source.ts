import { sha256Hex } from '../../domain/delivery.ts'
import type {
  Arrived,
  Arriving,
  Identity,
  SourceKind,
  SourceSecret,
  SourceVerification,
  Steps,
} from '../../domain/source.ts'
import { fetchResult, submit } from './calls.ts'
import { parse } from './report.ts'

/** The Dream Machine of Luma, whose webhooks are not signed. */
export const luma: SourceKind = {
  identify,
  verify,
  parse,
  fetchResult,
  submit,
  promises: {
    signatureHeaders: [],
    environmentOf: () => 'live',
    signed: false,
    idempotentSubmit: false,
    secrets: undefined,
    apiUrl: 'https://api.lumalabs.ai/dream-machine/v1',
  },
}

/** Luma sends no id, so a repeated delivery is known by its bytes. */
function identify({ body }: Arriving): Identity {
  if (body === undefined) return { ok: false, claimed: undefined, message: 'the id is the hash of the body' }
  return { ok: true, webhookId: `sha256-${sha256Hex(body)}` }
}

/**
 * Accepts every body, under the first key: Luma documents no signature. Nothing of it is believed, because `parse`
 * returns hints only.
 */
// oxlint-disable-next-line require-yield -- every kind verifies in steps, and this one has none
function* verify(_arrived: Arrived, [first]: readonly SourceSecret[], nowSeconds: number): Steps<SourceVerification> {
  return first === undefined
    ? { ok: false, cause: 'no_matching_secret', timestampSeconds: undefined }
    : { ok: true, keyName: first.name, timestampSeconds: nowSeconds }
}
