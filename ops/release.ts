import { execFileSync, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'

// `npm run release -- <version>` makes a tagged commit from a clean main, and the package, SBOM and checksums below
// release/. It pushes and publishes nothing: its last lines say how to. A step that fails, or a Ctrl-C, leaves the tree as it
// was. Edits made meanwhile are not released; in the files that a release writes, they are reverted.

const root = path.resolve(import.meta.dirname, '..')
const usage = 'usage: npm run release -- <version> [--base node:24-bookworm-slim@sha256:…] [--dry-run [--skip-tests]]'

/** Files that name the version besides package.json and its lock; the pattern matches the version only. */
const mentions: readonly [string, RegExp][] = [
  ['docs/quickstart.md', /(?<=mediadock-)\d[\w.-]*(?=\.tgz)/g],
  ['docs/recipes/models.md', /(?<=mediadock-)\d[\w.-]*(?=\.tgz)/g],
  ['openapi/receiver.json', /(?<="info": \{[^}]*?"version": ")[^"]+/],
  ['src/provider/api/openapi.json', /(?<="info": \{[^}]*?"version": ")[^"]+/],
  ['deploy/kubernetes/kustomization.yaml', /(?<=newTag: )\S+/],
  ['deploy/kubernetes/migrate.yaml', /(?<=\/mediadock:)\S+/],
]

/** The committed files that a release writes. */
const written = ['package.json', 'package-lock.json', ...mentions.map(([file]) => file)]

class ReleaseError extends Error {
  override name = 'ReleaseError'
}

type Options = { version: string; base: string | undefined; isDry: boolean; skipsTests: boolean }

function readOptions(args: string[]): Options {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: { 'dry-run': { type: 'boolean' }, 'skip-tests': { type: 'boolean' }, base: { type: 'string' } },
  })
  const [version, ...more] = positionals
  const { base, 'dry-run': isDry = false, 'skip-tests': skipsTests = false } = values
  if (version === undefined || more.length > 0) throw new ReleaseError(usage)
  if (!/^\d+\.\d+\.\d+(?:-[\w.]+)?$/.test(version))
    throw new ReleaseError(`"${version}" is not a version: give one like 1.2.3`)
  if (skipsTests && !isDry) throw new ReleaseError('--skip-tests works only with --dry-run: a release runs all tests')
  if (base !== undefined && !/@sha256:[0-9a-f]{64}$/.test(base))
    throw new ReleaseError('--base needs a digest: see the Dockerfile')
  return { version, base, isDry, skipsTests }
}

const say = (line: string): void => void process.stdout.write(`${line}\n`)
const run = (program: string, args: readonly string[]) =>
  void execFileSync(program, args, { cwd: root, stdio: 'inherit' })
const answer = (program: string, args: readonly string[], cwd = root) =>
  execFileSync(program, args, { cwd, encoding: 'utf8', maxBuffer: 256 * 1024 * 1024 }).trim()
const git = (...args: string[]) => answer('git', args)
const succeeds = (program: string, args: readonly string[]) => spawnSync(program, args, { cwd: root }).status === 0

/** Uncommitted changes, independent of git's configuration. */
const changes = () => git('status', '--porcelain', '--untracked-files=normal')

/** The commit, the branch and all uncommitted changes. */
const treeNow = () =>
  [git('rev-parse', 'HEAD'), git('rev-parse', '--abbrev-ref', 'HEAD'), changes(), git('diff', '--binary', 'HEAD')].join(
    '\n',
  )

/** Checks the preconditions. Changes nothing; a dry run checks them too. */
function expectReady({ version }: Options): void {
  const branch = git('rev-parse', '--abbrev-ref', 'HEAD')
  if (branch !== 'main') throw new ReleaseError(`the branch is ${branch}: switch to main`)
  if (!succeeds('git', ['var', 'GIT_COMMITTER_IDENT']))
    throw new ReleaseError('git has no committer: set user.name and user.email')
  const changed = changes()
  if (changed !== '') throw new ReleaseError(`the tree is not clean: commit or remove\n${changed}`)
  if (git('tag', '--list', `v${version}`) !== '')
    throw new ReleaseError(`the tag v${version} exists: release another version`)
  const changelog = fs.readFileSync(path.join(root, 'CHANGELOG.md'), 'utf8')
  const section = changelog.split(/^## /m).find((text) => text.split(/\s/, 1)[0] === version)
  if (section === undefined || section.split('\n').slice(1).join('').trim() === '')
    throw new ReleaseError(`CHANGELOG.md has no section "## ${version}" that says what changed`)
  if (/@example\.(?:invalid|com)\b/.test(fs.readFileSync(path.join(root, 'SECURITY.md'), 'utf8')))
    throw new ReleaseError('SECURITY.md has a placeholder for the reporting address: replace it with your mailbox')
}

/** High and critical vulnerabilities end the release. An unreachable registry is only reported. */
function audit(): void {
  const { stdout } = spawnSync('npm', ['audit', '--omit=dev', '--json'], { cwd: root, encoding: 'utf8' })
  const counts = vulnerabilitiesOf(stdout)
  if (counts === undefined) return say('npm audit: the registry is unreachable: run it again before you push')
  const { high = 0, critical = 0 } = counts
  if (high + critical > 0)
    throw new ReleaseError(`npm audit: ${high} high and ${critical} critical vulnerabilities: see npm audit --omit=dev`)
  say(`npm audit: no high or critical vulnerabilities`)
}

function vulnerabilitiesOf(report: string): Record<string, number> | undefined {
  try {
    const { metadata }: { metadata?: { vulnerabilities?: Record<string, number> } } = JSON.parse(report)
    return metadata?.vulnerabilities
  } catch {
    return undefined
  }
}

/**
 * Writes the SBOM of an installation. In a checkout, npm would leave out packages that development needs too, so it
 * first reduces the lock file to the packages of an installation, without a registry.
 */
function writeSbom(file: string): void {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'mediadock-sbom-'))
  try {
    // The SBOM names the folder.
    const at = path.join(folder, 'mediadock')
    fs.mkdirSync(at)
    for (const name of ['package.json', 'package-lock.json', '.npmrc'])
      fs.copyFileSync(path.join(root, name), path.join(at, name))
    answer('npm', ['pkg', 'delete', 'workspaces', 'devDependencies', 'peerDependencies', 'peerDependenciesMeta'], at)
    const dockerfile = fs.readFileSync(path.join(root, 'Dockerfile'), 'utf8')
    answer('npm', ['pkg', 'set', ...(dockerfile.match(/(?<=')dependencies\.[^']+=\*(?=')/g) ?? [])], at)
    answer('npm', ['i', '--package-lock-only', '--offline', '--ignore-scripts'], at)
    fs.writeFileSync(
      file,
      `${answer('npm', ['sbom', '--sbom-format', 'cyclonedx', '--omit', 'dev', '--package-lock-only'], at)}\n`,
    )
  } finally {
    fs.rmSync(folder, { recursive: true, force: true })
  }
}

function setVersion(version: string): void {
  run('npm', ['version', version, '--no-git-tag-version', '--allow-same-version', '--ignore-scripts'])
  for (const [file, pattern] of mentions) {
    const text = fs.readFileSync(path.join(root, file), 'utf8')
    if (text.search(pattern) < 0)
      throw new ReleaseError(`${file} does not name the version where ops/release.ts expects it: correct one of them`)
    fs.writeFileSync(path.join(root, file), text.replace(pattern, version))
  }
}

/** Returns the first image builder that works. docker works only with its daemon. */
function imageBuilder(): readonly string[] | undefined {
  if (succeeds('docker', ['info'])) return ['docker', 'build']
  return succeeds('buildah', ['version']) ? ['buildah', 'build'] : undefined
}

function buildImage({ version, base }: Options): string {
  if (base === undefined)
    return 'no image was built: name the base image with --base, by its digest (see the Dockerfile)'
  const [program, ...args] = imageBuilder() ?? []
  if (program === undefined) return 'no image was built: neither docker nor buildah works here'
  run(program, [...args, '--build-arg', `BASE=${base}`, '--tag', `mediadock:${version}`, '.'])
  return `the image is mediadock:${version}, on ${base}`
}

function writeSums(folder: string): void {
  const files = fs.readdirSync(folder).filter((name) => name !== 'SHA256SUMS')
  const sums = files.map(
    (name) =>
      `${createHash('sha256')
        .update(fs.readFileSync(path.join(folder, name)))
        .digest('hex')}  ${name}\n`,
  )
  fs.writeFileSync(path.join(folder, 'SHA256SUMS'), sums.join(''))
}

/** Commits and tags, or does neither. */
function commitAndTag(version: string): void {
  const before = git('rev-parse', 'HEAD')
  if (changes() !== '') git('commit', '--message', `Release ${version}`, '--', ...written)
  try {
    git('tag', '--annotate', `v${version}`, '--message', `mediadock ${version}`)
  } catch (error) {
    git('reset', '--soft', before)
    throw error
  }
}

const tests: readonly [string, () => void][] = [
  ['npm test', () => run('npm', ['test'])],
  ['npm run test:release', () => run('npm', ['run', 'test:release'])],
]

function release(options: Options): void {
  const { version, isDry, skipsTests } = options
  expectReady(options)
  let tree = ''
  const folder = path.join(root, 'release', version)
  let image = ''
  const steps: readonly [string, () => void][] = [
    // First, so that all later steps use this version.
    [
      `set the version to ${version}`,
      () => {
        setVersion(version)
        tree = treeNow()
      },
    ],
    ['npm ci', () => run('npm', ['ci'])],
    ...(skipsTests ? [] : tests),
    ['npm audit --omit=dev', audit],
    [`empty release/${version}/`, () => emptied(folder)],
    [`write the SBOM to release/${version}/sbom.cdx.json`, () => writeSbom(path.join(folder, 'sbom.cdx.json'))],
    [`pack release/${version}/mediadock-${version}.tgz`, () => run('npm', ['pack', '--pack-destination', folder])],
    ['write the checksums', () => writeSums(folder)],
    ['build the image', () => void (image = buildImage(options))],
    ['check that the tested tree is unchanged', () => expectSame(tree)],
    [`commit, tag v${version}`, () => commitAndTag(version)],
  ]
  if (isDry) {
    for (const [what] of steps) say(`would: ${what}`)
    if (skipsTests) say('would not, because of --skip-tests: run the tests')
    return say('would: end; nothing was changed')
  }
  // A terminal's Ctrl-C ends the running step. That ends the release, after it has cleaned up.
  for (const signal of ['SIGINT', 'SIGHUP'] as const) process.on(signal, () => {})
  try {
    for (const [what, step] of steps) {
      say(`\n== ${what}`)
      step()
    }
  } catch (error) {
    git('restore', '--staged', '--worktree', '--', ...written)
    fs.rmSync(folder, { recursive: true, force: true })
    throw error
  }
  sayWhatIsLeft(version, image)
}

/** Refuses edits and commits made since the tests began, which are untested or not in the package. */
function expectSame(tree: string): void {
  if (treeNow() !== tree)
    throw new ReleaseError(`the tree has changed since the tests began: release again\n${changes()}`)
}

function emptied(folder: string): void {
  fs.rmSync(folder, { recursive: true, force: true })
  fs.mkdirSync(folder, { recursive: true })
}

function sayWhatIsLeft(version: string, image: string): void {
  say(`
v${version} is committed and tagged here, and nothing was pushed. ${image}
  git show v${version}                       check it; to undo it: git tag --delete v${version} && git reset --hard HEAD~1
  git push origin main v${version}
  npm publish release/${version}/mediadock-${version}.tgz
  release/${version}/                        the package, its SBOM, and their checksums`)
}

try {
  release(readOptions(process.argv.slice(2)))
} catch (error) {
  // A program that failed has printed its reason.
  const isOurs =
    error instanceof ReleaseError ||
    (error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS'))
  process.stderr.write(`release: ${error instanceof Error ? error.message : String(error)}\n`)
  process.exitCode = isOurs ? 2 : 1
}
