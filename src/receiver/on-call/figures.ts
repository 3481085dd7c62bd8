// Numbers and sentences in the texts of problems.

export function count(n: number, one: string, many: string): string {
  return `${n} ${n === 1 ? one : many}`
}

export function duration(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`
}

/** Joins the parts of a text with spaces. Empty ones are left out. */
export function sentences(...parts: readonly string[]): string {
  return parts.filter((part) => part !== '').join(' ')
}

/** The time of day in UTC to the minute, with its date where that is not today. */
export function clockTime(iso: string, now: Date, end = 16): string {
  const [day, time] = [iso.slice(0, 10), iso.slice(11, end)]
  return day === now.toISOString().slice(0, 10) ? time : `${day} ${time}`
}

/** The same to the second, for a moment that is seconds away. */
export function exactTime(iso: string, now: Date): string {
  return clockTime(iso, now, 19)
}
