/** Inputs that state the number of images. If a model of the live catalog uses another name, the number is unknown. */
const names = ['num_images', 'num_outputs', 'number_of_images', 'n']

/** Returns how many images an input asks for, if it says so. */
export function itemsWanted(input: unknown): number | undefined {
  if (typeof input !== 'object' || input === null) return undefined
  for (const name of names) {
    const asked: unknown = Object.hasOwn(input, name) ? Reflect.get(input, name) : undefined
    if (typeof asked === 'number' && Number.isInteger(asked) && asked >= 1 && asked <= 100) return asked
  }
  return undefined
}
