import type { Landing } from './landing.ts'

/** How much one statement is given to land: the driver and Postgres each hold it a few times over. */
const maxWaveBytes = 8 * 1024 * 1024

/** The rest of a row: ids, times and the names of the columns. */
const rowBytes = 512

/**
 * Groups of which each can be landed by one statement: in none does a request
 * stand twice, since a statement can write a row only once, and none is larger
 * than a statement may be. What says something of the same request stays in order.
 */
export function wavesOf<One extends { landing: Landing }>(ready: readonly One[], maxBytes = maxWaveBytes): One[][] {
  const waves: { all: One[]; bytes: number }[] = []
  const after = new Map<string, number>()
  for (const one of ready) {
    const bytes = bytesOf(one.landing)
    let at = after.get(one.landing.requestId) ?? 0
    for (let wave = waves[at]; wave && wave.bytes + bytes > maxBytes; wave = waves[at]) at += 1
    after.set(one.landing.requestId, at + 1)
    const wave = (waves[at] ??= { all: [], bytes: 0 })
    wave.all.push(one)
    wave.bytes += bytes
  }
  return waves.map(({ all }) => all)
}

/** One statement lands each request once: so many statements in a round may be for the sake of one of them. */
const turnsPerRound = 4

/**
 * What is landed now, and what is put off: of one request a few deliveries a round,
 * the rest by `turn` later. Thousands of them, which one secret is enough for,
 * would otherwise be thousands of statements before anybody else's.
 */
export function inTurns<One extends { landing: Landing }>(
  ready: readonly One[],
): { now: One[]; later: { one: One; turn: number }[] } {
  const seen = new Map<string, number>()
  const now: One[] = []
  const later: { one: One; turn: number }[] = []
  for (const one of ready) {
    const place = seen.get(one.landing.requestId) ?? 0
    seen.set(one.landing.requestId, place + 1)
    if (place < turnsPerRound) now.push(one)
    else later.push({ one, turn: Math.floor(place / turnsPerRound) })
  }
  return { now, later }
}

/** About what a landing weighs as JSON: its output says the links of its media once more. */
export function bytesOf({ error, media, model }: Landing): number {
  const links = media.reduce(
    (sum, { url, original_url }) => sum + url.length + (original_url?.length ?? 0) + rowBytes,
    0,
  )
  return rowBytes + links * 2 + (error?.message.length ?? 0) + (model?.length ?? 0)
}
