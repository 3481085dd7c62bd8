// This file imports nothing: the client, which needs none of our packages, reads pages within the same limits.

/** A page with more bytes of foreign content ends early, after at least one item, with a place to continue. */
export const maxPageBytes = 2 * 1024 * 1024

/**
 * SQL text: true while a statement that reads row by row may read another row. The time decides, because the stored
 * size does not show the work: metadata is compressed up to ninety times, and a filter may read it many times. One
 * second is a fifth of the time limit of a query, which leaves time for the last row.
 */
export const hasTime = "clock_timestamp() < statement_timestamp() + interval '1 s'"
