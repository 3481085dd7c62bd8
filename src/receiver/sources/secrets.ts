import type { SecretForm } from '../domain/source.ts'

/** 128 bits. Shorter secrets could be guessed. */
const minSecretBytes = 16

/** Secrets whose text is the HMAC key. HMAC pads a key with zero bytes, so trailing ones do not change a signature. */
export const textSecrets: SecretForm = {
  mustBe: `have at least ${minSecretBytes} bytes`,
  keyBytes: (secret) => {
    const bytes = Buffer.from(secret.replace(/\0+$/, ''))
    return bytes.length >= minSecretBytes ? bytes : undefined
  },
}
