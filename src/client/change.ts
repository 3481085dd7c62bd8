import type { FeedItem } from '../receiver/queries/feed.ts'

/** A change of a result, beside the row of `results` and the media as they were when it was read. */
export type ResultChange = FeedItem

export type ChangePage = { data: ResultChange[]; head: number }

/** Where changes are read from. Rejects with ReadError where it makes no sense to try again. */
export type ChangeSource = (after: number, signal: AbortSignal) => Promise<ChangePage>

/** Reading on is refused: the position is none, or too old, or the caller may not read. */
export class ReadError extends Error {
  override name = 'ReadError'
  code: string
  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options)
    this.code = code
  }
}
