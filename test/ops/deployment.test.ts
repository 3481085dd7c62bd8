import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { parseEnv, promisify } from 'node:util'
import { describe, expect, it, onTestFinished } from 'vitest'
import { parse } from 'yaml'
import { z } from 'zod'
import { readConfig, type Program } from '../../src/config/config.ts'

const root = path.resolve(import.meta.dirname, '../..')
const read = (file: string) => fs.readFile(path.join(root, file), 'utf8')
const nothing = { databaseUrl: undefined, keys: undefined, secretKey: undefined }

async function temporaryFolder(): Promise<string> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-deployment-'))
  onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
  return folder
}

const composeFile = z.object({
  services: z.record(
    z.string(),
    z.object({
      environment: z.record(z.string(), z.string()).optional(),
      secrets: z.array(z.unknown()).optional(),
      volumes: z.array(z.string()).optional(),
      stop_grace_period: z.string().optional(),
    }),
  ),
  secrets: z.record(z.string(), z.object({ file: z.string() })),
})
const readCompose = async () => composeFile.parse(parse(await read('compose.yaml'), { merge: true }))

describe('compose.yaml', () => {
  it.each<[string, Program]>([
    ['mediadock-1', 'receiver'],
    ['mediadock-2', 'receiver'],
    ['provider', 'provider'],
  ])('%s starts with what it is given', async (name, program) => {
    const { services } = await readCompose()
    const secrets = await temporaryFolder()
    const contents = {
      database_url: 'postgres://mediadock:secret@postgres/media',
      internal_token: 'x'.repeat(32),
      provider_secret_key: Buffer.alloc(32).toString('base64'),
      generation_keys: '[{"name":"live","api_key":"service_live_x","signing_secret":"whsec_x"}]',
    }
    for (const [secret, text] of Object.entries(contents)) await fs.writeFile(path.join(secrets, secret), `${text}\n`)
    const given = Object.entries(services[name]?.environment ?? {}).map(([setting, value]) => {
      const file = /^\/run\/secrets\/(\w+)$/.exec(value)?.[1]
      if (file !== undefined) expect(services[name]?.secrets).toContain(file)
      return [setting, file === undefined ? value.replace(/^\$\{\w+:\?.*\}$/, 'https://given.example.com') : path.join(secrets, file)]
    })
    const config = readConfig({ NODE_ENV: 'production', ...Object.fromEntries(given) }, [program], nothing)
    const grace = config[program]?.shutdownGraceSeconds ?? Number.NaN
    expect(Number.parseInt(services[name]?.stop_grace_period ?? '', 10)).toBeGreaterThan(grace)
  })

  it('names files that are there, and services that its balancer and Prometheus know', async () => {
    const { services } = await readCompose()
    const mounted = Object.values(services).flatMap(({ volumes = [] }) =>
      volumes.flatMap((volume) => /^(\.\/ops\/[^:]+):/.exec(volume)?.[1] ?? []),
    )
    expect(mounted.length).toBeGreaterThan(3)
    for (const file of mounted) await expect(fs.stat(path.join(root, file))).resolves.toBeDefined()
    const receivers = Object.keys(services).filter((name) => name.startsWith('mediadock-'))
    for (const file of ['ops/nginx.conf', 'ops/haproxy.cfg', 'ops/prometheus.yml']) {
      const text = (await read(file)).replaceAll(/^ *#.*$/gm, '')
      expect([file, ...new Set([...text.matchAll(/\b(mediadock-\d):300\d/g)].map(([, name]) => name))]).toEqual([file, ...receivers])
    }
  })
})

const hasSystemd = await promisify(execFile)('systemd-analyze', ['--version']).then(
  () => true,
  () => false,
)

describe('ops/mediadock.service', () => {
  it('gives a stop the time that it may take, and starts the program as the README does', async () => {
    const unit = await read('ops/mediadock.service')
    const readme = await read('README.md')
    const command = /^exec node_modules\/\.bin\/(node .*)$/m.exec(readme)?.[1]
    expect(unit).toContain(`ExecStart=/opt/mediadock/node_modules/.bin/${command}`)
    const { SHUTDOWN_GRACE_SECONDS } = parseEnv(await read('.env.example'))
    expect(Number(/TimeoutStopSec=(\d+)/.exec(unit)?.[1])).toBeGreaterThan(Number(SHUTDOWN_GRACE_SECONDS))
  })

  it.skipIf(!hasSystemd)('is a unit that systemd takes, where systemd-analyze is installed', async () => {
    const file = path.join(await temporaryFolder(), 'mediadock.service')
    await fs.writeFile(file, (await read('ops/mediadock.service')).replace('/opt/mediadock/node_modules/.bin/node', process.execPath))
    const { stdout, stderr } = await promisify(execFile)('systemd-analyze', ['verify', file])
    expect(`${stdout}${stderr}`).not.toMatch(/mediadock\.service/)
  })
})
