import type { SourceKind } from '../../domain/source.ts'
import { generationQueue } from '../generation-queue/source.ts'
import { identify, secrets, verify } from './signature.ts'

/** The API of the first source, with webhooks signed as in Standard Webhooks: for your own engines and gateways. */
export const standardWebhooks: SourceKind = {
  ...generationQueue,
  identify,
  verify,
  promises: {
    ...generationQueue.promises,
    signatureHeaders: ['webhook-signature'],
    environmentOf: () => 'live',
    secrets,
  },
}
