import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { parseEnv, promisify } from 'node:util'
import postgres from 'postgres'
import { describe, expect, inject, it, onTestFinished } from 'vitest'
import { parse } from 'yaml'
import { z } from 'zod'
import { migrationsOf, type Program, readConfig } from '../../src/config/config.ts'
import { migrate } from '../../src/platform/postgres/migrate.ts'
import { describeOnPackaged, withPackagedPostgres } from '../support/own-packaged-postgres.ts'
import { printedCommands } from './printed-commands.ts'

const root = path.resolve(import.meta.dirname, '../..')
const read = (file: string) => fs.readFile(path.join(root, file), 'utf8')
const nothing = { databaseUrl: undefined, keys: undefined, secretKey: undefined }

async function temporaryFolder(): Promise<string> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-deployment-'))
  onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
  return folder
}

const secretSchema = z.union([z.string(), z.object({ source: z.string() }).transform(({ source }) => source)])
const composeFile = z.object({
  services: z.record(
    z.string(),
    z.object({
      command: z.array(z.string()).optional(),
      environment: z.record(z.string(), z.string()).optional(),
      env_file: z.array(z.object({ path: z.string(), required: z.boolean() })).default([]),
      secrets: z.array(secretSchema).default([]),
      volumes: z.array(z.string()).optional(),
      tmpfs: z.array(z.string()).default([]),
      ports: z.array(z.string()).default([]),
      cap_drop: z.array(z.string()).default([]),
      security_opt: z.array(z.string()).default([]),
      group_add: z.array(z.string()).default([]),
      stop_grace_period: z.string().optional(),
    }),
  ),
  secrets: z.record(z.string(), z.object({ file: z.string() })),
})
const readCompose = async () => composeFile.parse(parse(await read('compose.yaml'), { merge: true }))

/** Replaces variables as Compose does: `:-` states a default, `:+` what stands for a given one, `:?` refuses. */
function interpolated(value: string, env: Readonly<Record<string, string>>): string {
  return value.replaceAll(/\$\{(\w+):([-+?])([^}]*)\}/g, (_, name: string, how: string, text: string) => {
    const given = env[name] ?? ''
    if (how === '+') return given === '' ? '' : text
    if (how === '?' && given === '') throw new Error(`${name} is missing: ${text}`)
    return given === '' ? text : given
  })
}

describe('compose.yaml', () => {
  it.each<[string, Program]>([
    ['mediadock-1', 'receiver'],
    ['mediadock-2', 'receiver'],
    ['provider', 'provider'],
  ])('%s starts with its settings from compose.yaml and the optional ones from .env', async (name, program) => {
    const { services } = await readCompose()
    const secrets = await temporaryFolder()
    const contents = {
      mediadock_run: 'postgres://mediadock_run:secret@postgres/media',
      mediadock_provider_run: 'postgres://mediadock_provider_run:secret@postgres/media',
      internal_token: 'x'.repeat(32),
      provider_console_token: 'y'.repeat(32),
      provider_secret_key: Buffer.alloc(32).toString('base64'),
      generation_keys: '[{"name":"live","api_key":"service_live_x","signing_secret":"whsec_of_this_test"}]',
    }
    for (const [secret, text] of Object.entries(contents)) await fs.writeFile(path.join(secrets, secret), `${text}\n`)
    const urls = { GENERATION_API_URL: 'https://api.example.com', WEBHOOK_PUBLIC_URL: 'https://given.example.com' }
    const given = Object.entries(services[name]?.environment ?? {}).map(([setting, stated]) => {
      const value = interpolated(stated, urls)
      const file = /^\/run\/secrets\/(\w+)$/.exec(value)?.[1]
      if (file !== undefined) expect(services[name]?.secrets).toContain(file)
      return [setting, file === undefined ? value : path.join(secrets, file)]
    })
    expect(services[name]?.env_file).toEqual([{ path: '.env', required: false }])
    // All of the example beneath it, with a database, keys and ports of which none may win over those of this file.
    const example = {
      ...parseEnv(await read('.env.example')),
      PORT: '8080',
      INTERNAL_TOKEN: 'z'.repeat(32),
      KEEP_ALIVE_SECONDS: '90',
    }
    const config = readConfig({ ...example, ...Object.fromEntries(given) }, [program], nothing)
    expect(config).toMatchObject({ production: true, [program]: { keepAliveSeconds: 90 } })
    if (config.receiver)
      expect(config.receiver).toMatchObject({
        port: 3000,
        internalToken: 'x'.repeat(32),
        databaseUrl: contents.mediadock_run,
      })
    const grace = config[program]?.shutdownGraceSeconds ?? Number.NaN
    expect(Number.parseInt(services[name]?.stop_grace_period ?? '', 10)).toBeGreaterThan(grace)
  })

  it('a receiver starts with other sources alone, and asks for no URL of the default source', async () => {
    const { services } = await readCompose()
    const { environment = {}, volumes = [] } = services['mediadock-1'] ?? {}
    const folder = await temporaryFolder()
    const texts = { mediadock_run: 'postgres://mediadock_run:secret@postgres/media', internal_token: 'x'.repeat(32) }
    for (const [secret, text] of Object.entries(texts)) await fs.writeFile(path.join(folder, secret), text)
    const keys = [{ name: 'pictures', api_key: 'r8_x', signing_secret: `whsec_${'A'.repeat(32)}` }]
    await fs.writeFile(
      path.join(folder, 'sources.json'),
      JSON.stringify([{ name: 'pictures', kind: 'replicate', keys }]),
    )
    const env = { WEBHOOK_PUBLIC_URL: 'https://hooks.example.com/webhooks', SOURCES_FILE: '/run/sources/sources.json' }
    expect(volumes).toContain('./secrets/sources:/run/sources:ro')
    // Compose interpolates the whole file, also that of profiles that do not run.
    const all = Object.values(services).flatMap((service) => Object.values(service.environment ?? {}))
    for (const value of all) interpolated(value, env)
    const given = Object.entries({ ...env, ...environment }).map(([name, value]) => [
      name,
      interpolated(value, env).replace(/^\/run\/(?:secrets|sources)\//, `${folder}/`),
    ])
    const config = readConfig(Object.fromEntries(given), ['receiver'], nothing)
    expect([...(config.receiver?.keys.sources.keys() ?? [])]).toEqual(['pictures'])
    const { PROVIDER_BASE_URL = '' } = services['provider']?.environment ?? {}
    expect(() => new URL(interpolated(PROVIDER_BASE_URL, env))).toThrow('Invalid URL')
  })

  it('refers to existing files, and to services that nginx and Prometheus are configured for', async () => {
    const { services } = await readCompose()
    const mounted = Object.values(services).flatMap(({ volumes = [] }) =>
      volumes.flatMap((volume) => /^(\.\/ops\/[^:]+):/.exec(volume)?.[1] ?? []),
    )
    expect(mounted.length).toBeGreaterThan(3)
    for (const file of mounted) await expect(fs.stat(path.join(root, file))).resolves.toBeDefined()
    const receivers = Object.keys(services).filter((name) => name.startsWith('mediadock-'))
    for (const file of ['ops/nginx.conf', 'ops/haproxy.cfg', 'ops/prometheus.yml']) {
      const text = (await read(file)).replaceAll(/^ *#.*$/gm, '')
      expect([file, ...new Set([...text.matchAll(/\b(mediadock-\d):300\d/g)].map(([, name]) => name))]).toEqual([
        file,
        ...receivers,
      ])
    }
  })
})

describe('the rights in compose.yaml', () => {
  it('no service has more rights than its user, and each token has one purpose', async () => {
    const { services, secrets } = await readCompose()
    const loose = Object.entries(services).filter(
      ([, { cap_drop, security_opt }]) => !cap_drop.includes('ALL') || !security_opt.includes('no-new-privileges:true'),
    )
    expect(loose.map(([name]) => name)).toEqual([])
    const users = (secret: string) =>
      Object.entries(services).flatMap(([name, service]) => (service.secrets.includes(secret) ? [name] : []))
    expect(users('internal_token')).toEqual(['mediadock-1', 'mediadock-2', 'prometheus'])
    expect(users('grafana_password')).toEqual(['grafana'])
    expect(users('provider_console_token')).toEqual(['provider'])
    expect(users('postgres_password')).toEqual(['postgres', 'roles', 'grants'])
    for (const secret of Object.keys(secrets)) expect([secret, users(secret).length > 0]).toEqual([secret, true])
  })

  it('a receiver spools to a disk, and its console is published on loopback only', async () => {
    const { services } = await readCompose()
    for (const name of ['mediadock-1', 'mediadock-2']) {
      const { environment, volumes = [], tmpfs = [], ports = [] } = services[name] ?? {}
      const spool = environment?.['TMPDIR'] ?? '/tmp'
      expect(volumes.map((volume) => volume.split(':')[1])).toContain(spool)
      expect(tmpfs).not.toContain(spool)
      expect(await read('Dockerfile')).toContain(`--owner=node --group=node --mode=700 ${spool}\n`)
      expect(ports).toEqual([expect.stringMatching(/^127\.0\.0\.1:\d+:3001$/)])
    }
  })

  // Only root may give files to a group that it is not in.
  it.skipIf(process.getuid?.() !== 0)(
    'the printed commands create secrets that only the group of the services can read',
    async () => {
      const { services, secrets } = await readCompose()
      const folder = await temporaryFolder()
      await fs.writeFile(path.join(folder, 'generation-keys.json'), '[]')
      const commands =
        (await printedCommands('deploy.md', 'Compose')).find((one) => one.includes('secrets/provider-secret-key')) ?? ''
      await promisify(execFile)('bash', ['-ec', commands.replace('…/', '')], { cwd: folder })
      const at = (file: string) => path.join(folder, file)
      expect((await fs.stat(at('secrets'))).mode & 0o777).toBe(0o700)
      const texts = new Set<string>()
      for (const { file } of Object.values(secrets)) {
        const { mode, gid } = await fs.stat(at(file))
        expect([file, mode & 0o777, String(gid)]).toEqual([file, 0o640, services['prometheus']?.group_add[0]])
        texts.add(await fs.readFile(at(file), 'utf8'))
      }
      expect(texts.size).toBe(Object.keys(secrets).length)
    },
  )
})

describeOnPackaged('the roles that compose.yaml makes', () => {
  it(
    "sign in with the passwords of their URLs, and only the server's owner is a superuser",
    { timeout: 120_000 },
    async () => {
      const { services } = await readCompose()
      const server = await withPackagedPostgres({ settings: { fsync: 'off' } })
      const admin = postgres(server.url, { max: 1, onnotice: () => {} })
      onTestFinished(() => admin.end({ timeout: 1 }))
      await admin.unsafe('create database media')
      const secrets = await temporaryFolder()
      const roles = ['mediadock_migrate', 'mediadock_run', 'mediadock_provider_migrate', 'mediadock_provider_run']
      const urlOf = (role: string) => `postgres://${role}:of-${role}@127.0.0.1:${server.port}/media`
      for (const role of roles) await fs.writeFile(path.join(secrets, role), `${urlOf(role)}\n`)
      await fs.writeFile(path.join(secrets, 'postgres_password'), `${new URL(server.url).password}\n`)
      const script = (services['roles']?.command?.[2] ?? '')
        .replaceAll('$$', '$')
        .replaceAll('/run/secrets', secrets)
        .replace('/ops/', `${root}/ops/`)
        .replace('--host postgres', `--host 127.0.0.1 --port ${server.port}`)
      const env = { PATH: `${inject('packagedBinaries')}:${process.env['PATH']}` }
      for (const _time of [1, 2]) await promisify(execFile)('sh', ['-ec', script], { env })
      for (const role of roles) {
        const sql = postgres(urlOf(role), { max: 1 })
        expect([...(await sql`select current_user as name, current_setting('is_superuser') as super`)]).toEqual([
          { name: role, super: 'off' },
        ])
        await sql.end()
      }
      await migrate({ url: urlOf('mediadock_migrate'), ...migrationsOf.receiver })
    },
  )
})

const hasSystemd = await promisify(execFile)('systemd-analyze', ['--version']).then(
  () => true,
  () => false,
)

describe('ops/mediadock.service', () => {
  it('allows enough time for a stop, and starts the program as docs/deploy.md does', async () => {
    const unit = await read('ops/mediadock.service')
    const page = await read('docs/deploy.md')
    const command = /^exec node_modules\/\.bin\/(node .*)$/m.exec(page)?.[1]
    expect(unit).toContain(`ExecStart=/opt/mediadock/node_modules/.bin/${command}`)
    const { SHUTDOWN_GRACE_SECONDS } = parseEnv(await read('.env.example'))
    expect(Number(/TimeoutStopSec=(\d+)/.exec(unit)?.[1])).toBeGreaterThan(Number(SHUTDOWN_GRACE_SECONDS))
  })

  it('points to existing documentation that explains its installation', async () => {
    const unit = await read('ops/mediadock.service')
    const [, page = ''] = /^Documentation=file:\/\/\/opt\/mediadock\/(\S+)$/m.exec(unit) ?? []
    const installs =
      (await printedCommands('deploy.md', 'systemd')).find((one) => one.includes('ops/mediadock.service')) ?? ''
    expect(await read(page)).toContain(installs)
    for (const step of ['npm ci', '/opt/mediadock', '/etc/mediadock/receiver.env', 'systemctl enable'])
      expect(installs).toContain(step)
    const headings = (await read(page)).match(/^## .+$/gm)
    for (const [, heading] of unit.matchAll(/operations\.md, "([^"]+)"/g)) expect(headings).toContain(`## ${heading}`)
  })

  it.skipIf(!hasSystemd)('is valid for systemd-analyze, where it is installed', async () => {
    const file = path.join(await temporaryFolder(), 'mediadock.service')
    await fs.writeFile(
      file,
      (await read('ops/mediadock.service')).replace('/opt/mediadock/node_modules/.bin/node', process.execPath),
    )
    const { stdout, stderr } = await promisify(execFile)('systemd-analyze', ['verify', file])
    expect(`${stdout}${stderr}`).not.toMatch(/mediadock\.service/)
  })
})
