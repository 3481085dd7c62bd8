import { once } from 'node:events'
import { startForked } from './contenders.ts'

export type ReadOrder = {
  databaseUrl: string
  /** The internal listener. */
  consoleUrl: string
  /** So many by SQL, so many by long polls. */
  sql: number
  http: number
  /** The position behind which they begin. */
  after: number
}

/** What readers had until they were told the position of the last change. */
export type Read = {
  /** Of each reader, up to that position. */
  changes: number[]
  /** Of every change at every reader: its age when the reader had it. */
  p50Ms: number
  p99Ms: number
}

export type FeedReaders = { readTo: (position: number) => Promise<Read>; stop: () => Promise<void> }

/** Readers of the feed by the client, in a process of their own. */
export async function startFeedReaders(order: ReadOrder): Promise<FeedReaders> {
  const { child, stop } = await startForked('feed-readers-process.ts', [JSON.stringify(order)])
  return {
    readTo: async (position) => {
      child.send(position)
      const [read]: Read[] = await once(child, 'message')
      if (!read) throw new Error('the readers of the feed gave no answer')
      return read
    },
    stop,
  }
}
