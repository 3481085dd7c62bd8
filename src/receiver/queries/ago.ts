const unitMs: Record<string, number> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }

/** Turns `15m` into the time a quarter of an hour ago (units: s, m, h, d). Returns other text unchanged. */
export function ago(text: string, now = new Date()): string {
  const [, count, unit = ''] = /^(\d{1,6})([smhd])$/.exec(text) ?? []
  return count === undefined ? text : new Date(now.getTime() - Number(count) * (unitMs[unit] ?? 0)).toISOString()
}
