import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { onTestFinished } from 'vitest'

export type Posted = { headers: http.IncomingHttpHeaders; body: string; id: string; requestId: string; status: number }

export type Subscriber = {
  url: string
  /** The received posts, in the order of their answers. */
  posted: Posted[]
  /** How many are being answered just now, and the most that ever were: of all, and of one request. */
  most: { all: number; ofOne: number }
  /** Sets the next answers: a status, or a delay. */
  answer: (how: (post: Omit<Posted, 'status'>) => number | Promise<number>) => void
  ids: () => string[]
  /** True without connections and open answers, so that all posts of a dead process have arrived. */
  isQuiet: () => Promise<boolean>
}

/** A service that subscribed: real HTTP, on this machine. */
export async function startSubscriber(): Promise<Subscriber> {
  let how: Parameters<Subscriber['answer']>[0] = () => 204
  const posted: Posted[] = []
  const most = { all: 0, ofOne: 0 }
  const open: string[] = []
  const server = http.createServer((req, res) => {
    const take = async () => {
      const chunks: Buffer[] = []
      for await (const chunk of req) chunks.push(chunk)
      const body = Buffer.concat(chunks).toString('utf8')
      const requestId: string = JSON.parse(body).request_id
      open.push(requestId)
      most.all = Math.max(most.all, open.length)
      most.ofOne = Math.max(most.ofOne, open.filter((one) => one === requestId).length)
      const post = { headers: req.headers, body, id: String(req.headers['x-service-webhook-id']), requestId }
      const status = await how(post)
      open.splice(open.indexOf(requestId), 1)
      posted.push({ ...post, status })
      res.writeHead(status, { location: '/elsewhere' }).end('thrown away')
    }
    take().catch(() => res.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.close()
    server.closeAllConnections()
  })
  const answer: Subscriber['answer'] = (next) => {
    how = next
  }
  const isQuiet = async () => {
    const connections = await new Promise<number>((resolve, reject) => {
      server.getConnections((error, count) => (error ? reject(error) : resolve(count)))
    })
    return connections === 0 && open.length === 0
  }
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}/changes`,
    posted,
    most,
    answer,
    ids: () => posted.map(({ id }) => id),
    isQuiet,
  }
}
