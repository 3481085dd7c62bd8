import { startRelay } from './relay.ts'

export type Cut = {
  /** Bytes of the server's answers, from the beginning of a connection, that still come through. */
  after: number
  /** `reset` as a firewall or a crash does, `end` as a server that closes. */
  how: 'reset' | 'end'
}

/** A relay in front of Postgres that ends its connections in the middle of an answer. */
export async function startCuttingProxy(url: string) {
  let cut: Cut | undefined
  let answered = 0
  const relay = await startRelay(url, ({ client }) => {
    let passed = 0
    let isCut = false
    return (chunk) => {
      if (isCut) return
      const rest = cut === undefined ? chunk : chunk.subarray(0, Math.max(0, cut.after - passed))
      passed += rest.length
      answered = passed
      if (cut === undefined || rest.length === chunk.length) return void client.write(rest)
      isCut = true
      // A reset throws away what was not sent yet: first what may still pass, then the end.
      client.write(rest, () => (cut?.how === 'end' ? client.end() : client.resetAndDestroy()))
    }
  })
  return {
    url: relay.url,
    resetAll: relay.resetAll,
    /** Bytes of answers that the newest connection has brought. */
    answered: () => answered,
    cutAfter: (next: Cut | undefined) => {
      cut = next
    },
  }
}
