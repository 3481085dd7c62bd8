/** Where a request stands: the queue is served by turn, then in the order of arrival. */
export type QueueKey = { turn: number; seq: number }

/** The requests of one environment that were waiting at one moment, in the order in which they will be served. */
export type QueueView = {
  turns: number[]
  seqs: number[]
  /** When the walk that read it began, on the monotonic clock. */
  readAtMs: number
  maxAgeMs: number
}

/** Up to here a walk costs less than a caller could notice: each answer has one of its own. */
const alwaysWalked = 500
/** Beyond, the positions of ten thousand may be this old. */
const usualMaxAgeMs = 2000
/** And where a walk itself is slow, walking takes a twentieth of the time at most. */
const restsPerWalk = 20

export function createQueueView(
  turns: number[],
  seqs: number[],
  { readAtMs, tookMs }: { readAtMs: number; tookMs: number },
): QueueView {
  const maxAgeMs = turns.length <= alwaysWalked ? 0 : Math.max(usualMaxAgeMs, restsPerWalk * tookMs)
  return { turns, seqs, readAtMs, maxAgeMs }
}

/** How many will be served before; the request itself need not be in view. */
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

/** What was read of one request later than the view: it has joined, or left. */
export function amend(view: QueueView, key: QueueKey, isWaiting: boolean): void {
  const place = placeOf(view, key)
  const isInView = view.seqs[place] === key.seq
  if (isInView === isWaiting) return
  view.turns.splice(place, isWaiting ? 0 : 1, ...(isWaiting ? [key.turn] : []))
  view.seqs.splice(place, isWaiting ? 0 : 1, ...(isWaiting ? [key.seq] : []))
}
