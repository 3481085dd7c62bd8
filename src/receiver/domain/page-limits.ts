// This file imports nothing: the client, which needs none of our packages, reads pages within the same limits.

/** A page of a list. At half, a reader turns twice as many pages; at double, a page is several screens long. */
export const defaultPageItems = 50
/**
 * The largest page, and the most ids of a filter. At half, programs need twice as many calls. At double, the address of
 * these ids is longer than the 8 KB that proxies accept.
 */
export const maxPageItems = 200
/**
 * A short list beside other content. At half, a glance misses much of a busy minute; at double, it fills the screen.
 */
export const shortListItems = 20
/**
 * The media of a result beside other content. At half, most sets of pictures are cut; twice as many are rarely made.
 */
export const shownMediaItems = 10
/** The items that a sentence names, before "and 3 more". At half, small groups are cut; twice as many are not read. */
export const namedItems = 5
/**
 * A page with more bytes of foreign content ends early, after at least one item, with a place to continue. At double, a
 * few readers at once fill the memory of a process; at half, pages of large metadata have few items.
 */
export const maxPageBytes = 2 * 1024 * 1024

/**
 * SQL text: true while a statement that reads row by row may read another row. The time decides, because the stored
 * size does not show the work: metadata is compressed up to ninety times, and a filter may read it many times. One
 * second is a fifth of the time limit of a query, which leaves time for the last row.
 */
export const hasTime = "clock_timestamp() < statement_timestamp() + interval '1 s'"
