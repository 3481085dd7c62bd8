// Without imports: the client, which needs none of our packages, reads pages within the same limits.

/** A page with more bytes of foreign content ends early, after at least one item, with a place to continue. */
export const maxPageBytes = 2 * 1024 * 1024

/**
 * Text of SQL: a statement that goes from row to row may begin another one. Metadata is compressed up to ninety times,
 * and a filter may look at all of it many times: only the time tells how much work a row is. One second is a fifth of
 * what a query may take, since the last row ends later.
 */
export const hasTime = "clock_timestamp() < statement_timestamp() + interval '1 s'"
