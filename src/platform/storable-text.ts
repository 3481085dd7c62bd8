/**
 * The limit of a note: why something failed, what an audit entry or an issue says. The longest is the address of a list
 * of 50 requests, with 1,900 characters, so half of this would break its link. Twice as much only fills pages.
 */
const maxNoteCharacters = 2000

/** Makes a foreign text fit for a text column: Postgres stores neither NUL nor lone surrogates. Cuts a long one. */
export function storableText(text: string): string {
  return text.replaceAll('\0', '').toWellFormed().slice(0, maxNoteCharacters).toWellFormed()
}
