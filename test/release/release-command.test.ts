import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { z } from 'zod'
import packageJson from '../../package.json' with { type: 'json' }

const root = path.resolve(import.meta.dirname, '../..')
const run = promisify(execFile)
const version = '9.8.7'

const lockFile = z.object({
  packages: z.record(
    z.string(),
    z.object({
      version: z.string().optional(),
      dependencies: z.record(z.string(), z.string()).default({}),
      optionalDependencies: z.record(z.string(), z.string()).default({}),
    }),
  ),
})
const component = z.object({
  type: z.string(),
  name: z.string(),
  version: z.string(),
  purl: z.string(),
  'bom-ref': z.string(),
})
const bom = z.object({
  bomFormat: z.literal('CycloneDX'),
  specVersion: z.string().regex(/^1\.\d$/),
  metadata: z.object({ component }),
  components: z.array(
    component.extend({
      hashes: z.array(z.object({ alg: z.literal('SHA-512'), content: z.string().length(128) })).min(1),
    }),
  ),
  dependencies: z.array(z.object({ ref: z.string(), dependsOn: z.array(z.string()) })),
})

/**
 * The packages that the image installs, from the lock file: each dependency as Node finds it, and a receiver's optional
 * ones.
 */
const besidesDependencies = [
  'sharp',
  '@aws-sdk/client-s3',
  '@opentelemetry/api',
  '@opentelemetry/exporter-trace-otlp-proto',
  '@opentelemetry/resources',
  '@opentelemetry/sdk-trace',
]

function productionOf({ packages }: z.infer<typeof lockFile>): Set<string> {
  const found = new Map<string, string>()
  const visit = (from: string): void => {
    const { dependencies = {}, optionalDependencies = {} } = packages[from] ?? {}
    const besides = from === '' ? besidesDependencies : []
    for (const name of [...Object.keys({ ...dependencies, ...optionalDependencies }), ...besides]) {
      let at = from
      while (at !== '' && !packages[`${at}/node_modules/${name}`])
        at = at.includes('/node_modules/') ? at.slice(0, at.lastIndexOf('/node_modules/')) : ''
      const place = at === '' ? `node_modules/${name}` : `${at}/node_modules/${name}`
      const one = packages[place]
      if (one === undefined || found.has(place)) continue
      found.set(place, `${name}@${one.version}`)
      visit(place)
    }
  }
  visit('')
  return new Set(found.values())
}

describe('npm run release, in a copy of this checkout', () => {
  let copy: string
  const env = {
    ...process.env,
    npm_config_prefer_offline: 'true',
    GIT_AUTHOR_NAME: 'releaser',
    GIT_AUTHOR_EMAIL: 'releaser@mediadock.invalid',
    GIT_COMMITTER_NAME: 'releaser',
    GIT_COMMITTER_EMAIL: 'releaser@mediadock.invalid',
  }
  const git = async (...args: string[]) => (await run('git', args, { cwd: copy, env })).stdout.trim()
  const write = (file: string, text: string) => fs.writeFile(path.join(copy, file), text)
  const read = (file: string) => fs.readFile(path.join(copy, file), 'utf8')
  const release = (...args: (string | { env: NodeJS.ProcessEnv })[]) => {
    const words = args.filter((arg) => typeof arg === 'string')
    const { env: given = env } = args.find((arg) => typeof arg !== 'string') ?? {}
    return run(process.execPath, ['ops/release.ts', ...words], {
      cwd: copy,
      env: given,
      maxBuffer: 64 * 1024 * 1024,
    }).then(
      ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
      ({ code, stdout, stderr }: { code: number; stdout: string; stderr: string }) => ({ code, stdout, stderr }),
    )
  }

  beforeAll(async () => {
    copy = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-release-'))
    const { stdout } = await run('git', ['ls-files', '--cached', '--others', '--exclude-standard', '-z'], {
      cwd: root,
      maxBuffer: 16 * 1024 * 1024,
    })
    for (const file of stdout.split('\0').filter(Boolean)) {
      const from = path.join(root, file)
      if (!(await fs.stat(from).catch(() => undefined))) continue
      await fs.mkdir(path.dirname(path.join(copy, file)), { recursive: true })
      await fs.copyFile(from, path.join(copy, file))
    }
    // This is a test of the release, not of all the rest once more.
    await write(
      'package.json',
      JSON.stringify(
        { ...packageJson, scripts: { ...packageJson.scripts, test: 'node -e 0', 'test:release': 'node -e 0' } },
        undefined,
        2,
      ),
    )
    await git('init', '--quiet', '--initial-branch=main')
    await git('add', '--all')
    await git('commit', '--quiet', '--message', 'Everything')
  }, 60_000)
  afterAll(() => fs.rm(copy, { recursive: true, force: true, maxRetries: 10 }))

  it('requires a version, its section in the changelog, main, and a clean tree', async () => {
    expect(await release()).toMatchObject({ code: 2, stderr: expect.stringContaining('usage:') })
    expect(await release('next')).toMatchObject({
      code: 2,
      stderr: 'release: "next" is not a version: give one like 1.2.3\n',
    })
    expect(await release(version, '--skip-tests')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('works only with --dry-run'),
    })
    expect(await release(version, '--base', 'node:24')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('needs a digest'),
    })
    expect(await release(version)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(`has no section "## ${version}"`),
    })

    const changelog = await read('CHANGELOG.md')
    await write('CHANGELOG.md', changelog.replace(/^## /m, `## ${version}\n\n- All of it.\n\n## `))
    expect(await release(version)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('is not clean: commit or remove\nM CHANGELOG.md'),
    })
    await git('commit', '--all', '--quiet', '--message', 'Say what changed')
    expect(await release(version)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('SECURITY.md has a placeholder'),
    })
    await write(
      'SECURITY.md',
      (await read('SECURITY.md')).replace('security@example.invalid', 'security@mediadock.dev'),
    )
    await git('commit', '--all', '--quiet', '--message', 'Say where to report')
    await git('switch', '--quiet', '--create', 'other')
    expect(await release(version)).toMatchObject({
      code: 2,
      stderr: 'release: the branch is other: switch to main\n',
    })
    await git('switch', '--quiet', 'main')
  })

  it('prints its steps without changing anything', async () => {
    const before = await git('rev-parse', 'HEAD')
    const dry = await release(version, '--dry-run')
    expect(dry).toMatchObject({ code: 0, stderr: '' })
    const said = dry.stdout.trim().split('\n')
    expect(said.every((line) => line.startsWith('would: '))).toBe(true)
    expect(said.slice(-3)).toEqual([
      'would: check that the tested tree is unchanged',
      `would: commit, tag v${version}`,
      'would: end; nothing was changed',
    ])
    for (const step of ['npm ci', 'npm test', 'npm run test:release', 'npm audit --omit=dev', 'build the image'])
      expect(said).toContain(`would: ${step}`)
    const untested = await release(version, '--dry-run', '--skip-tests')
    expect(untested.stdout).not.toMatch(/^would: npm (?:test|run test)/m)
    expect([await git('rev-parse', 'HEAD'), await git('status', '--porcelain', '--ignored'), await git('tag')]).toEqual(
      [before, '', ''],
    )
  })

  it('leaves the tree unchanged if a step fails', async () => {
    const manifest = await read('package.json')
    await write('package.json', manifest.replace('"pino": "10.4.0"', '"pino": "10.4.1"'))
    await git('commit', '--all', '--quiet', '--message', 'Forget the lock file')
    expect(await release(version)).toMatchObject({ code: 1, stderr: expect.stringContaining('Command failed: npm ci') })
    expect([await git('status', '--porcelain'), await git('tag')]).toEqual(['', ''])
    await git('reset', '--quiet', '--hard', 'HEAD~1')
  })

  it('releases only what was tested, reverts only its own changes, and tags its commit', async () => {
    // The installation and the tests are replaced: only the steps around them are tested.
    const bin = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-release-npm-'))
    onTestFinished(() => fs.rm(bin, { recursive: true, force: true }))
    const npm = `#!/bin/sh
      case "$1" in
        version) exec sed -i 's/^  "version": ".*"/  "version": "'$2'"/' package.json package-lock.json ;;
        test) eval "$MEANWHILE" ;;
        audit) echo '{"metadata":{"vulnerabilities":{}}}' ;;
        sbom) echo '{}' ;;
      esac`
    await fs.writeFile(path.join(bin, 'npm'), npm, { mode: 0o755 })
    const withMeanwhile = (meanwhile: string) => ({
      ...env,
      PATH: `${bin}:${process.env['PATH']}`,
      MEANWHILE: meanwhile,
    })
    const before = await git('rev-parse', 'HEAD')
    const left = async () => [
      await git('rev-parse', 'HEAD'),
      await git('tag'),
      await git('status', '--porcelain', '--ignored'),
    ]

    const edited = await release(version, { env: withMeanwhile('echo "// untested" >> src/main.ts') })
    expect(edited).toMatchObject({ code: 2, stderr: expect.stringContaining('has changed since the tests began') })
    expect(await left()).toEqual([before, '', 'M src/main.ts'])
    expect((await release(version, { env: withMeanwhile('false') })).stderr).toContain('is not clean')
    await git('checkout', '--quiet', 'src/main.ts')

    const failed = await release(version, { env: withMeanwhile('echo "// mine" >> src/main.ts; false') })
    expect(failed).toMatchObject({ code: 1, stderr: expect.stringContaining('Command failed: npm test') })
    expect(await left()).toEqual([before, '', 'M src/main.ts'])
    await git('checkout', '--quiet', 'src/main.ts')

    const committed = await release(version, {
      env: withMeanwhile('git commit --quiet --allow-empty --message other -- CHANGELOG.md'),
    })
    expect(committed).toMatchObject({ code: 2, stderr: expect.stringContaining('has changed since the tests began') })
    await git('reset', '--quiet', '--hard', before)

    await git('config', 'tag.gpgSign', 'true')
    await git('config', 'gpg.program', 'false')
    expect(await release(version, { env: withMeanwhile('true') })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('unable to sign'),
    })
    expect(await left()).toEqual([before, '', ''])
    await git('config', '--unset', 'tag.gpgSign')

    const interrupted = await release(version, { env: withMeanwhile('kill -INT $PPID; kill -INT $$; sleep 5') })
    expect(interrupted).toMatchObject({ code: 1, stderr: expect.stringContaining('Command failed: npm test') })
    expect(await left()).toEqual([before, '', ''])

    const { stdout } = await release(version, { env: withMeanwhile('true') })
    expect(stdout).toContain('git push origin main v9.8.7')
    expect(await git('rev-parse', 'v9.8.7^{commit}', 'HEAD~1')).toBe(`${await git('rev-parse', 'HEAD')}\n${before}`)
    expect(JSON.parse(await read('package.json'))).toMatchObject({ version })
    await git('tag', '--delete', 'v9.8.7')
    await git('reset', '--quiet', '--hard', before)
    await fs.rm(path.join(copy, 'release'), { recursive: true })
  })

  // It installs everything anew.
  it(
    'makes a commit with its tag, the package, and an SBOM of all that runs; and pushes nothing',
    { timeout: 300_000 },
    async () => {
      const before = await git('rev-parse', 'HEAD')
      const released = await release(version)
      expect(released, released.stderr).toMatchObject({ code: 0 })
      expect(released.stdout).toMatch(
        /^npm audit: (?:no high or critical vulnerabilities|the registry is unreachable)/m,
      )
      expect(released.stdout).toContain('git push origin main v9.8.7')
      expect(released.stdout).toContain('npm publish release/9.8.7/mediadock-9.8.7.tgz')
      expect(released.stdout).toContain('no image was built: name the base image')

      expect(await git('rev-parse', 'v9.8.7^{commit}', 'HEAD~1')).toBe(`${await git('rev-parse', 'HEAD')}\n${before}`)
      expect(await git('status', '--porcelain')).toBe('')
      expect((await git('show', '--stat', '--format=%s', 'HEAD')).split('\n')[0]).toBe('Release 9.8.7')
      expect(JSON.parse(await read('package.json'))).toMatchObject({ version, license: 'MIT' })
      expect(JSON.parse(await read('package-lock.json'))).toMatchObject({ version, packages: { '': { version } } })
      expect(await read('package-lock.json')).not.toMatch(/https?:\/\/registry/)
      expect(await read('docs/quickstart.md')).toContain('npm i ./mediadock-9.8.7.tgz')
      expect(JSON.parse(await read('openapi/receiver.json')).info.version).toBe(version)

      expect((await fs.readdir(path.join(copy, 'release', version))).toSorted()).toEqual([
        'SHA256SUMS',
        'mediadock-9.8.7.tgz',
        'sbom.cdx.json',
      ])
      await run('sha256sum', ['--check', 'SHA256SUMS'], { cwd: path.join(copy, 'release', version) })
      const { stdout: packed } = await run('tar', [
        '-xzOf',
        path.join(copy, 'release', version, 'mediadock-9.8.7.tgz'),
        'package/package.json',
      ])
      expect(JSON.parse(packed).version).toBe(version)

      const sbom = bom.parse(JSON.parse(await read(`release/${version}/sbom.cdx.json`)))
      expect(sbom.metadata.component).toMatchObject({ name: 'mediadock', version })
      const wanted = productionOf(lockFile.parse(JSON.parse(await read('package-lock.json'))))
      expect(wanted.size).toBeGreaterThan(100)
      expect(new Set(sbom.components.map((one) => `${one.name}@${one.version}`))).toEqual(wanted)
      const refs = new Set([sbom.metadata.component, ...sbom.components].map((one) => one['bom-ref']))
      expect(
        sbom.dependencies.flatMap(({ ref, dependsOn }) => [ref, ...dependsOn]).filter((ref) => !refs.has(ref)),
      ).toEqual([])

      expect(await release(version)).toMatchObject({
        code: 2,
        stderr: expect.stringContaining('the tag v9.8.7 exists'),
      })
    },
  )
})
