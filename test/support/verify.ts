import { atOnce } from '../../src/receiver/domain/source.ts'
import { type Secret, type Verification, verifyInSteps } from '../../src/wire/signature.ts'

/** Verifies a signature without a pause. */
export function verify(body: Uint8Array, header: string, secrets: readonly Secret[], nowSeconds: number): Verification {
  return atOnce(verifyInSteps(body, header, secrets, nowSeconds))
}
