import type { ProcessEnvironment, SettingProblem } from '../platform/settings.ts'

/**
 * Two slips: a swap of neighbours counts as two. At three, DATABASE_PORT and GENERATION_API_PORT, which Kubernetes
 * sets for services of these names, would pass for DATABASE_URL and GENERATION_API_URL.
 */
const maxEdits = 2

/**
 * Finds variables that nobody reads but that look like a setting: their first word is one of ours, and at most
 * two edits lead to its whole name. Other variables belong to other programs.
 */
export function misspeltSettings(env: ProcessEnvironment, settings: ReadonlySet<string>): SettingProblem[] {
  const long = [...settings].filter((name) => name.includes('_'))
  return Object.keys(env).flatMap((name) => {
    if (!env[name] || settings.has(name)) return []
    const near = long
      .filter((setting) => firstWord(setting) === firstWord(name))
      .map((setting) => ({ setting, edits: editsBetween(name, setting) }))
      .toSorted((a, b) => a.edits - b.edits)
    const nearest = near[0]
    if (nearest === undefined || nearest.edits > maxEdits) return []
    return [{ name, message: `is not a setting: did you mean ${nearest.setting}?` }]
  })
}

function firstWord(name: string): string {
  return name.slice(0, name.indexOf('_') + 1)
}

/** Levenshtein's distance: how many characters must be inserted, deleted or replaced. */
function editsBetween(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, n) => n)
  for (const [i, char] of [...a].entries()) {
    const next = [i + 1]
    for (let j = 0; j < b.length; j += 1)
      next.push(Math.min(row[j]! + (b[j] === char ? 0 : 1), row[j + 1]! + 1, next[j]! + 1))
    row = next
  }
  return row.at(-1)!
}
