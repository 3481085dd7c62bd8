import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { childEnv } from '../../support/child-env.ts'

export const root = path.resolve(import.meta.dirname, '../../..')

const run = promisify(execFile)

export type Ended = { code: number; stdout: string; stderr: string }

export type Installed = {
  folder: string
  /** Every file of the tarball. */
  files: string[]
  /** Runs a program of `node_modules/.bin`, or of the PATH, in the project. */
  run: (program: string, args: readonly string[], env?: Record<string, string>) => Promise<Ended>
  env: Record<string, string>
  remove: () => Promise<void>
}

/**
 * A project that has the tarball of `npm pack` as a package, laid out as `npm i` does it but without a registry: the
 * tarball is extracted, and every package that it depends on is linked from this checkout. Links are kept (a package
 * sees what is beside it in the project, not in the checkout), and what is optional is not there.
 */
export async function installPackage({ types }: { types: readonly string[] }): Promise<Installed> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-installed-'))
  const modules = path.join(folder, 'node_modules')
  const target = path.join(modules, 'mediadock')
  await fs.mkdir(path.join(modules, '.bin'), { recursive: true })
  await fs.mkdir(target)
  await fs.writeFile(path.join(folder, 'package.json'), '{"private":true,"type":"module"}')

  const packed = await run('npm', ['pack', '--json', '--pack-destination', folder], {
    cwd: root,
    maxBuffer: 16 * 1024 * 1024,
  })
  const tarball = (await fs.readdir(folder)).find((name) => name.endsWith('.tgz'))
  if (tarball === undefined) throw new Error(`npm pack made no tarball: ${packed.stdout}${packed.stderr}`)
  const { stdout: list } = await run('tar', ['-tzf', path.join(folder, tarball)])
  await run('tar', ['-xzf', path.join(folder, tarball), '-C', target, '--strip-components=1'])

  const { dependencies, bundleDependencies, bin } = await manifestOf(target)
  const wanted = Object.keys(dependencies).filter((name) => !bundleDependencies.includes(name))
  for (const name of [...(await withDependencies(wanted)), ...types]) {
    await fs.mkdir(path.dirname(path.join(modules, name)), { recursive: true })
    await fs.symlink(path.join(root, 'node_modules', name), path.join(modules, name))
  }
  for (const [name, file] of Object.entries(bin))
    await fs.symlink(path.join('../mediadock', file), path.join(modules, '.bin', name))

  const env = {
    ...childEnv,
    PATH: `${path.join(modules, '.bin')}:${childEnv.PATH}`,
    NODE_OPTIONS: '--preserve-symlinks',
  }
  return {
    folder,
    files: list
      .trim()
      .split('\n')
      .map((file) => file.replace(/^package\//, '')),
    run: async (program, args, given = {}) =>
      run(program, args, { cwd: folder, env: { ...env, ...given } }).then(
        ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
        ({ code, stdout, stderr }: Ended) => ({ code, stdout, stderr }),
      ),
    env,
    remove: () => fs.rm(folder, { recursive: true, force: true, maxRetries: 10 }),
  }
}

type Manifest = { dependencies: Record<string, string>; bundleDependencies: string[]; bin: Record<string, string> }

async function manifestOf(folder: string): Promise<Manifest> {
  const given: Partial<Manifest> = JSON.parse(await fs.readFile(path.join(folder, 'package.json'), 'utf8'))
  return {
    dependencies: given.dependencies ?? {},
    bundleDependencies: given.bundleDependencies ?? [],
    bin: given.bin ?? {},
  }
}

/** These packages and what they depend on, as far as it lies beside them; what lies below one of them comes with it. */
async function withDependencies(names: readonly string[]): Promise<string[]> {
  const folders = new Set<string>()
  const visit = async (name: string, from: string): Promise<void> => {
    const folder = await nearest(name, from)
    if (folder === undefined || folders.has(folder)) return
    folders.add(folder)
    for (const dependency of Object.keys((await manifestOf(folder)).dependencies)) await visit(dependency, folder)
  }
  for (const name of names) await visit(name, root)
  const beside = path.join(root, 'node_modules/')
  return [...folders].map((folder) => folder.slice(beside.length)).filter((name) => !name.includes('node_modules'))
}

/** As Node looks for it, up to the root. */
async function nearest(name: string, from: string): Promise<string | undefined> {
  const folder = path.join(from, 'node_modules', name)
  if (await fs.stat(folder).catch(() => undefined)) return folder
  return from === root ? undefined : nearest(name, path.dirname(from))
}
