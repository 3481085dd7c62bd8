import fs from 'node:fs/promises'
import path from 'node:path'

/** The commands of a section of docs/operations.md, as they are printed. */
export async function printedCommands(heading: string): Promise<string[]> {
  const page = await fs.readFile(path.resolve(import.meta.dirname, '../../docs/operations.md'), 'utf8')
  const [, section = ''] = new RegExp(`^## ${heading}\\n([^]*?)^## `, 'm').exec(page) ?? []
  return [...section.matchAll(/^```sh\n([^]*?)^```/gm)].map(([, commands = '']) => commands)
}
