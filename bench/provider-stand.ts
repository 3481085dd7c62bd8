import { once } from 'node:events'
import { startForked } from './contenders.ts'

/** The behaviour of the provider's stand-in from now on. */
export type StandOrder = {
  /** How long each answer takes. */
  answerMs?: number
  /** Calls for these requests are never answered. */
  hangs?: string[]
  /** The port is closed, and so are the connections. */
  away?: boolean
}

export type ProviderStand = { url: string; order: (order: StandOrder) => Promise<void>; stop: () => Promise<void> }

/** A process that answers `GET /v1/requests/{id}` with the full result of any request, like the provider. */
export async function startProviderStand(): Promise<ProviderStand> {
  const { child, url, stop } = await startForked('provider-stand-process.ts', [])
  return {
    url,
    order: async (order) => {
      child.send(order)
      await once(child, 'message')
    },
    stop,
  }
}
