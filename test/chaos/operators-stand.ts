import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import postgres from 'postgres'
import { inject, onTestFinished } from 'vitest'
import { freePort } from '../provider/support/free-port.ts'
import { withAutoFailover, type HaCluster, type HaNode } from '../support/auto-failover.ts'
import { withPgBouncer, type Bouncer } from '../support/bouncer.ts'
import { childEnv } from '../support/child-env.ts'
import { withReceiverProcess, type ReceiverProcess } from './receiver-process.ts'

const run = promisify(execFile)
const root = path.resolve(import.meta.dirname, '../..')

const roles = ['mediadock_migrate', 'mediadock_run', 'mediadock_read'] as const
type Role = (typeof roles)[number]

type Key = { name: string; api_key: string; signing_secret: string; retired?: boolean }

/** A version: where its files are, and what is run of it. */
type Version = { folder: string; main: string; cli: string }

export const present: Version = {
  folder: root,
  main: path.join(root, 'src/main.ts'),
  cli: path.join(root, 'src/cli.ts'),
}
export const packageAt = (folder: string): Version => ({
  folder,
  main: path.join(folder, 'dist/main.js'),
  cli: path.join(folder, 'dist/cli.js'),
})

export type OperatorsStand = {
  cluster: HaCluster
  receivers: readonly ReceiverProcess[]
  /** A superuser's connection to the writable server, or to the given one. */
  adminUrl: (database?: string, node?: HaNode) => string
  /** PgBouncer beside this server. */
  bouncerOf: (node: HaNode) => Bouncer
  migrate: (version: Version) => Promise<void>
  /** Writes the file of the keys and tells every receiver. */
  setKeys: (keys: readonly Key[]) => Promise<void>
  /** Runs `mediadock …` with the settings of a receiver; answers what it printed. */
  mediadock: (version: Version, ...args: string[]) => Promise<string>
}

/** By the steps of docs/postgres.md and docs/deploy.md: servers, roles, PgBouncer, migration, receivers. */
export async function standUp(
  version: Version,
  keys: readonly Key[],
  settings: Record<string, string>,
): Promise<OperatorsStand> {
  const cluster = await withAutoFailover()
  await cluster.untilWhole()
  const adminUrl = (database = 'media', node?: HaNode) => {
    const url = cluster.url.replace('/postgres?', `/${database}?`)
    return node === undefined ? url : url.replace(/@.*\//, `@127.0.0.1:${node.port}/`).replace(/\?.*/, '')
  }
  await psql(adminUrl('postgres'), '--command=create database media')
  await applyRoles(adminUrl(), version)
  for (const role of roles) await psql(adminUrl(), `--command=alter role ${role} password '${role}'`)
  const admin = postgres(adminUrl(), { max: 1, onnotice: () => {} })
  const users = await admin<{ line: string }[]>`
    select format('"%s" "%s"', rolname, rolpassword) as line from pg_authid where rolname = any(${[...roles]}::text[])`
  await admin.end()
  const userlist = `${users.map(({ line }) => line).join('\n')}\n`
  const bouncers = new Map<HaNode, Bouncer>()
  for (const node of cluster.nodes) bouncers.set(node, await withPgBouncer(node.port, userlist))
  const hosts = [...bouncers.values()].map(({ port }) => `127.0.0.1:${port}`).join(',')
  const as = (role: Role) => `postgres://${role}:${role}@${hosts}/media?target_session_attrs=read-write`
  // Each process has connected to its present server, and reports its state.
  for (const { port } of bouncers.values())
    await psql(`postgres://mediadock_run:mediadock_run@127.0.0.1:${port}/media`, '--command=select 1')

  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-operators-'))
  onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
  const keysFile = path.join(folder, 'generation-keys.json')
  await fs.writeFile(keysFile, JSON.stringify(keys))
  const env = {
    NODE_ENV: 'production',
    GENERATION_API_URL: 'http://127.0.0.1:9',
    GENERATION_KEYS: '',
    GENERATION_KEYS_FILE: keysFile,
    WEBHOOK_PUBLIC_URL: 'https://hooks.example.com/webhooks',
    MIGRATE_ON_START: 'false',
    ...settings,
  }
  const mediadockOf = async (of: Version, url: string, ...args: string[]) => {
    const given = { ...childEnv, ...env, DATABASE_URL: url }
    const { stdout } = await run(process.execPath, [of.cli, ...args], { cwd: folder, env: given })
    return stdout
  }
  const migrate = async (to: Version) => {
    await mediadockOf(to, as('mediadock_migrate'), 'migrate', 'receiver')
    await applyRoles(adminUrl(), to)
  }
  await migrate(version)
  const receivers: ReceiverProcess[] = []
  for (const port of [await freePort(), await freePort()]) {
    const its = { ...env, INTERNAL_PORT: String(port) }
    receivers.push(await withReceiverProcess(as('mediadock_run'), its, { program: version.main }))
  }
  return {
    cluster,
    receivers,
    adminUrl,
    bouncerOf: (node) => {
      const bouncer = bouncers.get(node)
      if (bouncer === undefined) throw new Error(`there is no PgBouncer beside ${node.name}`)
      return bouncer
    },
    migrate,
    setKeys: async (next) => {
      await fs.writeFile(`${keysFile}.new`, JSON.stringify(next))
      await fs.rename(`${keysFile}.new`, keysFile)
      for (const receiver of receivers) process.kill(receiver.pid(), 'SIGHUP')
    },
    mediadock: (of, ...args) => mediadockOf(of, as('mediadock_run'), ...args),
  }
}

async function applyRoles(url: string, { folder }: Version): Promise<void> {
  await psql(url, '--set=ON_ERROR_STOP=1', `--file=${path.join(folder, 'ops/roles.sql')}`)
}

async function psql(url: string, ...args: string[]): Promise<void> {
  await run(path.join(inject('packagedBinaries'), 'psql'), ['--no-psqlrc', '--quiet', `--dbname=${url}`, ...args])
}
