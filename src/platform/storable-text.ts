/** Makes a foreign text fit for a text column: Postgres stores neither NUL nor lone surrogates. Cuts it to a length. */
export function storableText(text: string, maxLength: number): string {
  return text.replaceAll('\0', '').toWellFormed().slice(0, maxLength).toWellFormed()
}
