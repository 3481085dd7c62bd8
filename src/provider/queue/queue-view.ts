/** The place of a request in the queue: ordered by turn, then by arrival. */
export type QueueKey = { turn: number; seq: number }

/** The waiting requests of one environment at one moment, in serving order. */
export type QueueView = {
  turns: number[]
  seqs: number[]
  /** When the walk began, on the monotonic clock. */
  readAtMs: number
  maxAgeMs: number
}

export function createQueueView(
  turns: number[],
  seqs: number[],
  { readAtMs, tookMs }: { readAtMs: number; tookMs: number },
): QueueView {
  // A queue of 500 takes under a millisecond to walk, so each answer walks it. In a longer one, positions may be two
  // seconds old, and slow walks take at most a twentieth of the time.
  const maxAgeMs = turns.length <= 500 ? 0 : Math.max(2000, 20 * tookMs)
  return { turns, seqs, readAtMs, maxAgeMs }
}

/** Counts the requests that are served before this one, which need not be in the view. */
export function placeOf({ turns, seqs }: QueueView, { turn, seq }: QueueKey): number {
  let low = 0
  let high = turns.length
  while (low < high) {
    const middle = (low + high) >>> 1
    const isBefore = turns[middle] === turn ? (seqs[middle] ?? 0) < seq : (turns[middle] ?? 0) < turn
    if (isBefore) low = middle + 1
    else high = middle
  }
  return low
}

/** Adds or removes one request whose state was read after the view. */
export function amend(view: QueueView, key: QueueKey, isWaiting: boolean): void {
  const place = placeOf(view, key)
  const isInView = view.seqs[place] === key.seq
  if (isInView === isWaiting) return
  view.turns.splice(place, isWaiting ? 0 : 1, ...(isWaiting ? [key.turn] : []))
  view.seqs.splice(place, isWaiting ? 0 : 1, ...(isWaiting ? [key.seq] : []))
}
