import { createCipheriv, createDecipheriv, hash, randomBytes } from 'node:crypto'

/** Encrypts with AES-256-GCM and a key of 32 bytes. Returns a random IV (12 bytes), the tag (16) and the ciphertext. */
export function seal(text: string, secretKey: Buffer): Buffer {
  const iv = randomBytes(12)
  const cipher = createCipheriv('aes-256-gcm', secretKey, iv)
  const sealed = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()])
  return Buffer.concat([iv, cipher.getAuthTag(), sealed])
}

/** Decrypts. Throws if the key is wrong or a byte has changed. */
export function unseal(box: Buffer, secretKey: Buffer): string {
  const decipher = createDecipheriv('aes-256-gcm', secretKey, box.subarray(0, 12))
  decipher.setAuthTag(box.subarray(12, 28))
  return Buffer.concat([decipher.update(box.subarray(28)), decipher.final()]).toString('utf8')
}

export function sha256(text: string): Buffer {
  return hash('sha256', text, 'buffer')
}
