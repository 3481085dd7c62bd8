// This file imports nothing: the client, which needs none of our packages, reads pages within the same limits.

/** A page of a list: about two screens. */
export const defaultPageItems = 50
/** The largest page, and the most ids of a filter: an address with these ids fits the 8 KB that proxies accept. */
export const maxPageItems = 200
/** A short list beside other content, which must not fill the screen. */
export const shortListItems = 20
/** The media of a result beside other content. Few results have more. */
export const shownMediaItems = 10
/** The items that a sentence names, before "and 3 more". Nobody reads a longer list in a sentence. */
export const namedItems = 5
/**
 * A page with more bytes of foreign content ends early, after at least one item, with a place to continue, so that a
 * few readers at once do not fill the memory of a process.
 */
export const maxPageBytes = 2 * 1024 * 1024

/**
 * SQL text: true while a statement that reads row by row may read another row. The time decides, because the stored
 * size does not show the work: metadata is compressed up to ninety times, and a filter may read it many times. One
 * second is a fifth of the time limit of a query, which leaves time for the last row.
 */
export const hasTime = "clock_timestamp() < statement_timestamp() + interval '1 s'"
