import { startRelay } from './relay.ts'

/** Types of messages that a server sends (PostgreSQL, Message Formats). */
export const messageTypes = { dataRow: 0x44, commandComplete: 0x43 } as const

/** A relay in front of Postgres that leaves messages of some types out of its answers, as a broken driver or pooler does. */
export async function startOmittingProxy(url: string) {
  let omitted: readonly number[] = []
  const relay = await startRelay(url, ({ client }) => {
    let pending = Buffer.alloc(0)
    return (chunk) => {
      pending = Buffer.concat([pending, chunk])
      while (pending.length >= 5 && pending.length > pending.readUInt32BE(1)) {
        const end = pending.readUInt32BE(1) + 1
        const message = pending.subarray(0, end)
        pending = pending.subarray(end)
        if (!omitted.includes(message[0] ?? 0)) client.write(message)
      }
    }
  })
  return {
    url: relay.url,
    /** From now on these are left out. */
    omit: (...types: number[]) => {
      omitted = types
    },
  }
}
