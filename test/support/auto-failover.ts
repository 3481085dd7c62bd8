import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import postgres from 'postgres'
import { inject, onTestFinished } from 'vitest'
import { freePort } from '../provider/support/free-port.ts'
import { eventually } from './eventually.ts'
import { own, serverUser } from './packaged-postgres.ts'

const run = promisify(execFile)

/** Where Debian's packages `pg-auto-failover-cli` and `postgresql-15-auto-failover` are installed. */
export async function hasAutoFailover(): Promise<boolean> {
  const binaries = inject('packagedBinaries')
  if (binaries === '') return false
  const module = path.join(binaries, '../lib/pgautofailover.so')
  const has = async (file: string) =>
    fs.access(file).then(
      () => true,
      () => false,
    )
  return (await has('/usr/bin/pg_autoctl')) && (await has(module))
}

export type HaNode = {
  name: string
  port: number
  /** SIGKILL to the keeper and to its server, as when the machine is gone. */
  kill: () => Promise<void>
  /** The machine comes back. */
  start: () => Promise<void>
}

/** A monitor and two servers that pg_auto_failover looks after, as it comes. */
export type HaCluster = {
  /** Both hosts, in any role. */
  url: string
  nodes: readonly [HaNode, HaNode]
  /**
   * The state that the monitor has assigned, by name: `primary`, `secondary`, `wait_primary`…, and whether it is
   * reached.
   */
  states: () => Promise<Record<string, string>>
  /** One is the primary, the other follows it synchronously; answers them. */
  untilWhole: () => Promise<{ primary: HaNode; secondary: HaNode }>
}

const wholeWithinMs = 180_000
/** Its monitor calls a server unhealthy after 20 s, and lets the lost primary time to give up; then it promotes. */
const promotedWithinMs = 120_000

/** Sets it up by its own commands, each under the user who may run servers. */
export async function withAutoFailover(): Promise<HaCluster> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-ha-'))
  const owner = await serverUser()
  await own(folder, owner)
  const env = {
    // It looks into every folder of it, and fails at those that its user may not read.
    PATH: [inject('packagedBinaries'), '/usr/bin', '/bin'].join(path.delimiter),
    HOME: folder,
    XDG_CONFIG_HOME: path.join(folder, 'config'),
    XDG_DATA_HOME: path.join(folder, 'share'),
    XDG_RUNTIME_DIR: path.join(folder, 'run'),
    LANG: 'C',
  }
  const started: ChildProcess[] = []
  const autoctl = (dataDir: string, args: readonly string[]) => {
    const child = spawn('pg_autoctl', [...args, '--pgdata', dataDir], {
      ...owner,
      cwd: folder,
      env,
      detached: true,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    child.stderr?.on('data', (chunk: Buffer) => void fs.appendFile(`${dataDir}.log`, chunk).catch(() => {}))
    started.push(child)
    return child
  }
  onTestFinished(async () => {
    for (const child of started) await end(child)
    for (const name of ['monitor', 'first', 'second']) await killServer(path.join(folder, name))
    await fs.rm(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 200 })
  })

  const common = ['--hostname', '127.0.0.1', '--auth', 'trust', '--no-ssl', '--run']
  const monitorPort = await freePort()
  autoctl(path.join(folder, 'monitor'), ['create', 'monitor', '--pgport', `${monitorPort}`, ...common])
  const monitorUrl = `postgres://autoctl_node@127.0.0.1:${monitorPort}/pg_auto_failover`
  await eventually(async () => (await asked(monitorUrl, 'select 1')).length > 0, wholeWithinMs)

  const node = async (name: string): Promise<HaNode> => {
    const port = await freePort()
    const dataDir = path.join(folder, name)
    let keeper = autoctl(dataDir, [
      'create',
      'postgres',
      '--name',
      name,
      '--pgport',
      `${port}`,
      '--monitor',
      monitorUrl,
      ...common,
    ])
    return {
      name,
      port,
      kill: async () => {
        await end(keeper)
        await killServer(dataDir)
      },
      start: async () => {
        keeper = autoctl(dataDir, ['run'])
      },
    }
  }
  const states = async () => {
    const rows = await asked<{ name: string; state: string }>(
      monitorUrl,
      `select nodename as name, case when goalstate = reportedstate then goalstate::text else 'on its way to ' || goalstate::text end as state from pgautofailover.node`,
    )
    return Object.fromEntries(rows.map(({ name, state }) => [name, state]))
  }
  const first = await node('first')
  // The second copies the first, which has to be there.
  await eventually(async () => (await states())['first'] === 'single', wholeWithinMs)
  const nodes = [first, await node('second')] as const
  const untilWhole = () =>
    eventually(async () => {
      const seen = await states()
      const by = (state: string) => nodes.find(({ name }) => seen[name] === state)
      const [primary, secondary] = [by('primary'), by('secondary')]
      return primary && secondary && { primary, secondary }
    }, wholeWithinMs)
  const user =
    owner.uid === undefined ? os.userInfo().username : (await run('id', ['-nu', `${owner.uid}`])).stdout.trim()
  const hosts = nodes.map(({ port }) => `127.0.0.1:${port}`).join(',')
  return { url: `postgres://${user}@${hosts}/postgres?target_session_attrs=read-write`, nodes, states, untilWhole }
}

/** When the engine lets it be written to: it is promoted before, and read-only until the lost one has had time to give up. */
export async function untilWritable(url: string): Promise<number> {
  const deadline = Date.now() + promotedWithinMs
  while (Date.now() < deadline) {
    const sql = postgres(url, { max: 1, connect_timeout: 2, onnotice: () => {} })
    const [row] = await sql<{ transaction_read_only: string }[]>`show transaction_read_only`.catch(() => [])
    await sql.end({ timeout: 1 })
    if (row?.transaction_read_only === 'off') return Date.now()
    await delay(100)
  }
  throw new Error(`nothing was promoted within ${promotedWithinMs / 1000} s`)
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return
  const gone = once(child, 'exit')
  kill(-child.pid)
  await gone
}

/** Its own processes end when they see that the first is gone. */
async function killServer(dataDir: string): Promise<void> {
  const pid = Number((await fs.readFile(path.join(dataDir, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n')[0])
  if (pid > 1) kill(pid)
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It is gone already.
  }
}

async function asked<T extends object>(url: string, statement: string): Promise<T[]> {
  const sql = postgres(url, { max: 1, connect_timeout: 2, onnotice: () => {} })
  try {
    return [...(await sql.unsafe<T[]>(statement))]
  } catch {
    return []
  } finally {
    await sql.end({ timeout: 1 })
  }
}
