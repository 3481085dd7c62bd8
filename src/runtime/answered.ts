/** A statement ended without its answer: what it did is not known. */
export class NoAnswerError extends Error {
  override name = 'NoAnswerError'
  code = 'no_answer' as const
  constructor(what: string) {
    super(`${what}: Postgres gave no answer, so it is not known whether it was done`)
  }
}

/**
 * The one row of a statement that always gives one. Where "nothing matched" means
 * something it must be a value in a row: no row at all is an answer that got lost.
 */
export function one<Row>(rows: readonly Row[], what: string): Row {
  const [row] = rows
  if (row === undefined) throw new NoAnswerError(what)
  return row
}

/** The rows of a statement that may give none, once it is sure that it ran to its end. */
export function answered<Rows extends readonly unknown[] & { command?: string | null }>(rows: Rows, what: string): Rows {
  if (!rows.command) throw new NoAnswerError(what)
  return rows
}
