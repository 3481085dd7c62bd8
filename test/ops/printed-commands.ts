import fs from 'node:fs/promises'
import path from 'node:path'

/** The commands of a section of a page in docs/, as printed; subsections included. */
export async function printedCommands(page: string, heading: string): Promise<string[]> {
  const text = await fs.readFile(path.resolve(import.meta.dirname, '../../docs', page), 'utf8')
  const [, section = ''] = new RegExp(`^## ${heading}\\n([^]*?)(?:^## |(?![^]))`, 'm').exec(text) ?? []
  // Within a step of a list they are indented.
  return [...section.matchAll(/^( *)```sh\n([^]*?)^ *```/gm)].map(([, indent = '', commands = '']) =>
    commands.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
  )
}
