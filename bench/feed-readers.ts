import { once } from 'node:events'
import { startForked } from './contenders.ts'

export type ReadOrder = {
  databaseUrl: string
  /** The internal listener. */
  consoleUrl: string
  /** Number of readers over SQL and over long polls. */
  sql: number
  http: number
  /** The position behind which they begin. */
  after: number
}

/** The changes that readers had received before they learned the position of the last change. */
export type Read = {
  /** Of each reader, up to that position. */
  changes: number[]
  /** Of every change at every reader: its age when the reader had it. */
  p50Ms: number
  p99Ms: number
}

export type FeedReaders = { readTo: (position: number) => Promise<Read>; stop: () => Promise<void> }

/** Readers of the feed, in a separate process. */
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
