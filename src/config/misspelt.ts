import type { ProcessEnvironment, SettingProblem } from '../platform/settings.ts'

/**
 * Finds unknown variables that look like a misspelt setting: the first word is that of a setting, and at most
 * two edits lead to its name. Other unknown variables are ignored: they may belong to other programs.
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
    // A swap of neighbours counts as two edits. With three, DATABASE_PORT and GENERATION_API_PORT would be reported as
    // misspelt. Kubernetes sets them for services of these names.
    if (nearest === undefined || nearest.edits > 2) return []
    return [{ name, message: `is not a setting: did you mean ${nearest.setting}?` }]
  })
}

function firstWord(name: string): string {
  return name.slice(0, name.indexOf('_') + 1)
}

/** Levenshtein distance: the number of insertions, deletions and replacements. */
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
