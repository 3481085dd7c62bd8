import { createPublicKey, verify, type KeyObject } from 'node:crypto'

/** 32 bytes in base64url: `x` of a JWK. */
export const publicKeyPattern = /^[A-Za-z0-9_-]{43}$/

/** True if the private key of `x` signed the message. False if `x` is not a key. */
export function isSignedBy(x: string, message: Buffer, signature: Buffer): boolean {
  const key = publicKeyPattern.test(x) ? publicKeyOf(x) : undefined
  return key !== undefined && verify(null, message, key, signature)
}

function publicKeyOf(x: string): KeyObject | undefined {
  try {
    return createPublicKey({ format: 'jwk', key: { kty: 'OKP', crv: 'Ed25519', x } })
  } catch {
    return undefined
  }
}
