import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'

const root = path.resolve(import.meta.dirname, '../../..')

/** Writes the TypeScript files of the recipes to a new folder, with the packages that they import. */
export async function writeProject(files: readonly string[]): Promise<string> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-recipes-'))
  const modules = path.join(folder, 'node_modules')
  const client = path.join(modules, 'mediadock')
  await fs.mkdir(client, { recursive: true })
  await fs.writeFile(
    path.join(client, 'package.json'),
    '{"name":"mediadock","type":"module","exports":{"./client":"./client.ts"}}',
  )
  await fs.symlink(path.join(root, 'src/client/read-results.ts'), path.join(client, 'client.ts'))
  for (const name of ['postgres', 'drizzle-orm', 'undici-types'])
    await fs.symlink(path.join(root, 'node_modules', name), path.join(modules, name))
  await fs.symlink(path.join(root, 'node_modules/@types'), path.join(modules, '@types'))
  const compilerOptions = {
    module: 'nodenext',
    target: 'es2024',
    lib: ['es2024', 'esnext.iterator'],
    types: ['node'],
    strict: true,
    exactOptionalPropertyTypes: true,
    noUncheckedIndexedAccess: true,
    erasableSyntaxOnly: true,
    allowImportingTsExtensions: true,
    skipLibCheck: true,
    noEmit: true,
  }
  await fs.writeFile(path.join(folder, 'package.json'), '{"type":"module"}')
  await fs.writeFile(path.join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }))
  for (const text of files) {
    const [, name] = /^\/\/ (\S+\.ts)\n/.exec(text) ?? []
    if (name === undefined) throw new Error(`a file of the page has no name: ${text}`)
    await fs.writeFile(path.join(folder, name), text)
  }
  return folder
}
