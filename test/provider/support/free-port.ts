import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import net from 'node:net'

/**
 * A port that nothing listens on. It is below the ports that systems give to outgoing connections: one of those could
 * take it before the program starts for which it is meant, or while that program restarts.
 */
export async function freePort(): Promise<number> {
  for (let tries = 1; ; tries += 1) {
    const port = randomInt(10_000, 32_000)
    const server = net.createServer().listen(port, '127.0.0.1')
    try {
      await once(server, 'listening')
    } catch (error) {
      if (tries === 20) throw error
      continue
    }
    server.close()
    await once(server, 'close')
    return port
  }
}
