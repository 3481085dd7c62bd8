/**
 * The name under which the path of a webhook is stored with its headers. No header can have this name, since names of
 * headers contain no colon (RFC 9110).
 */
export const pathHeader = ':path'

const pathPattern =
  /^\/webhooks\/(?<source>[a-z0-9-]{1,63})(?:\?generation=(?<generation>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}))?$/i

/** The source of a webhook, and the Idempotency-Key of the submit that gave its URL. */
export type WebhookPath = { sourceName: string | null; idempotencyKey: string | undefined }

/** Returns the path of a source's webhooks. With the Idempotency-Key, a webhook leads back to its submit. */
export function webhookPath(sourceName: string, idempotencyKey?: string): string {
  return `/webhooks/${sourceName}${idempotencyKey === undefined ? '' : `?generation=${idempotencyKey}`}`
}

/** Reads the path in the stored headers of a webhook. Headers of the default source contain none. */
export function pathIn(headers: Readonly<Record<string, string>>): WebhookPath {
  const { source, generation } = pathPattern.exec(headers[pathHeader] ?? '')?.groups ?? {}
  return { sourceName: source ?? null, idempotencyKey: generation?.toLowerCase() }
}
