import { webhookIdPattern } from '../domain/delivery.ts'
import { jobIdPattern } from '../domain/request-id.ts'
import type { Arriving, Identity } from '../domain/source.ts'

/** Returns the id of a job as its source wrote it; undefined for any other value. */
export function jobIdOf(value: unknown): string | undefined {
  return typeof value === 'string' && jobIdPattern.test(value) ? value : undefined
}

/** Returns the `identify` of a kind whose deliveries carry their id in a header. */
export function idIn(
  name: string,
  { pattern = webhookIdPattern, form = 'visible ASCII characters' } = {},
): (arriving: Arriving) => Identity {
  const header = name.toLowerCase()
  return (arriving) => {
    const claimed = arriving.header(header)
    const [webhookId] = claimed
    if (webhookId !== undefined && claimed.length === 1 && pattern.test(webhookId)) return { ok: true, webhookId }
    return { ok: false, claimed: webhookId, message: `${name} must be given once, as 1 to 255 ${form}` }
  }
}
