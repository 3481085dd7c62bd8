/** Visible ASCII that does not begin with a dot: no job can be mistaken for a step in a path. */
const jobIdPattern = /^(?!\.)[\x21-\x7e]{1,255}$/

/** Returns the id of a job as its source wrote it; undefined for any other value. */
export function jobIdOf(value: unknown): string | undefined {
  return typeof value === 'string' && jobIdPattern.test(value) ? value : undefined
}
