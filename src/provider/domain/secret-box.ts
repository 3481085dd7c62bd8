import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto'

const ivBytes = 12
const tagBytes = 16

/** Encrypts with AES-256-GCM. Returns a random IV, the tag and the ciphertext. `secretKey` is 32 bytes. */
export function seal(text: string, secretKey: Buffer): Buffer {
  const iv = randomBytes(ivBytes)
  const cipher = createCipheriv('aes-256-gcm', secretKey, iv)
  const sealed = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()])
  return Buffer.concat([iv, cipher.getAuthTag(), sealed])
}

/** Decrypts. Throws if the key is wrong or a byte has changed. */
export function unseal(box: Buffer, secretKey: Buffer): string {
  const decipher = createDecipheriv('aes-256-gcm', secretKey, box.subarray(0, ivBytes))
  decipher.setAuthTag(box.subarray(ivBytes, ivBytes + tagBytes))
  return Buffer.concat([decipher.update(box.subarray(ivBytes + tagBytes)), decipher.final()]).toString('utf8')
}

export function sha256(text: string): Buffer {
  return createHash('sha256').update(text).digest()
}
