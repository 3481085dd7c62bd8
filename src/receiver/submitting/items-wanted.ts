/**
 * The inputs by which models are asked for several pictures at once; the live catalog has more of them, and what has
 * none of these is not known.
 */
const names = ['num_images', 'num_outputs', 'number_of_images', 'n']
const maxItems = 100

/** How many pictures an input asks for, where it says so. */
export function itemsWanted(input: unknown): number | undefined {
  if (typeof input !== 'object' || input === null) return undefined
  for (const name of names) {
    const asked: unknown = Object.hasOwn(input, name) ? Reflect.get(input, name) : undefined
    if (typeof asked === 'number' && Number.isInteger(asked) && asked >= 1 && asked <= maxItems) return asked
  }
  return undefined
}
