import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import postgres from 'postgres'

const run = promisify(execFile)
const password = 'of-the-tests'

/** A PostgreSQL as people install it: with JIT, and built for speed, which the embedded one is not. */
export type PackagedPostgres = {
  /** Connection string of the superuser to the database `postgres`. */
  url: string
  port: number
  dataDir: string
  /** Of the running server; 0 while it is stopped. */
  pid: () => number
  /** `fast` lets it write its checkpoint, `immediate` is a crash. */
  stop: (mode?: 'fast' | 'immediate') => Promise<void>
  /** On the same port and data as before. */
  start: () => Promise<void>
  /** While it is stopped: other data in the same place. */
  replaceData: (fill: (dataDir: string) => Promise<void>) => Promise<void>
  /** SIGSTOP to the server and to all of its children: connections stay open and nothing answers. */
  freeze: () => Promise<void>
  thaw: () => void
  remove: () => Promise<void>
}

export type PackagedOptions = {
  binaries: string
  /** A cluster that was made before and never started: it is copied, which is far cheaper than making one. */
  template?: string
  /** As in postgresql.conf. */
  settings?: Record<string, string>
  /** Lines for pg_hba.conf; without them everyone needs a password. */
  hba?: string[]
  /** Runs before the first start, to put files beside the data; a new file there belongs to the server's user afterwards. */
  prepare?: (dataDir: string) => Promise<void>
  /** Where its folder is made; with the other temporary ones unless this is given. */
  within?: string
}

/** The folder with the programs of an installed PostgreSQL 15 or newer; undefined where there is none. */
export async function findPackagedPostgres(): Promise<string | undefined> {
  const debian = await fs.readdir('/usr/lib/postgresql').catch(() => [])
  const newestFirst = debian
    .map(Number)
    .filter((version) => version >= 15)
    .toSorted((a, b) => b - a)
  const onPath = (process.env['PATH'] ?? '').split(path.delimiter).map((folder) => path.join(folder, 'postgres'))
  for (const program of [...newestFirst.map((version) => `/usr/lib/postgresql/${version}/bin/postgres`), ...onPath]) {
    const real = await fs.realpath(program).catch(() => undefined)
    if (
      real === undefined ||
      !(await fs.access(path.join(path.dirname(real), 'initdb')).then(
        () => true,
        () => false,
      ))
    )
      continue
    const { stdout } = await run(real, ['--version'])
    if (Number(/\d+/.exec(stdout)?.[0]) >= 15) return path.dirname(real)
  }
  return undefined
}

/** A cluster with the superuser of the tests, owned by who may run it. */
export async function initializeCluster(binaries: string, dataDir: string): Promise<void> {
  const owner = await serverUser()
  const cwd = path.dirname(dataDir)
  const passwordFile = path.join(cwd, 'password')
  await fs.writeFile(passwordFile, password)
  await own(cwd, owner)
  const options = [
    '-U',
    'postgres',
    '--auth=scram-sha-256',
    `--pwfile=${passwordFile}`,
    '--encoding=UTF8',
    '--locale=C',
    '--no-sync',
    '--no-instructions',
  ]
  await run(path.join(binaries, 'initdb'), ['-D', dataDir, ...options], { ...owner, cwd })
}

/** Creates a cluster in a temporary folder and starts it on a free port of 127.0.0.1. */
export async function startPackagedPostgres({
  binaries,
  template,
  settings = {},
  hba,
  prepare,
  within = os.tmpdir(),
}: PackagedOptions): Promise<PackagedPostgres> {
  const owner = await serverUser()
  const folder = await fs.mkdtemp(path.join(within, 'mediadock-packaged-'))
  const dataDir = path.join(folder, 'data')
  await own(folder, owner)
  if (template === undefined) await initializeCluster(binaries, dataDir)
  else await run('cp', ['-Rp', template, dataDir])
  if (hba) await fs.writeFile(path.join(dataDir, 'pg_hba.conf'), `${hba.join('\n')}\n`)
  await prepare?.(dataDir)
  await own(dataDir, owner)

  const port = await freePort()
  const flags = { port: String(port), listen_addresses: '127.0.0.1', unix_socket_directories: '', ...settings }
  let child: ChildProcess | undefined
  const isRunning = () => child !== undefined && child.exitCode === null && child.signalCode === null
  const url = `postgres://postgres:${password}@127.0.0.1:${port}/postgres`

  const start = async () => {
    const args = Object.entries(flags).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    child = spawn(path.join(binaries, 'postgres'), ['-D', dataDir, ...args], {
      ...owner,
      cwd: folder,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    let log = ''
    child.stderr?.on('data', (chunk: Buffer) => {
      log = (log + chunk.toString()).slice(-8000)
    })
    const deadline = Date.now() + 30_000
    while (isRunning() && Date.now() < deadline) {
      if (await answers(url)) return
    }
    throw new Error(`the packaged PostgreSQL did not start: ${log}`)
  }
  const stop = async (mode: 'fast' | 'immediate' = 'fast') => {
    if (!child || !isRunning()) return
    const gone = once(child, 'exit')
    child.kill(mode === 'fast' ? 'SIGINT' : 'SIGQUIT')
    await gone
  }
  let frozen: number[] = []
  const thaw = () => {
    for (const pid of frozen) signal(pid, 'SIGCONT')
    frozen = []
  }
  await start()
  return {
    url,
    port,
    dataDir,
    pid: () => (isRunning() ? (child?.pid ?? 0) : 0),
    start,
    stop,
    replaceData: async (fill) => {
      await fill(dataDir)
      if (hba) await fs.writeFile(path.join(dataDir, 'pg_hba.conf'), `${hba.join('\n')}\n`)
      await own(dataDir, owner)
    },
    freeze: async () => {
      const postmaster = child?.pid ?? 0
      // The first process first: then it forks no more, and the list of its children is whole.
      for (const pid of [postmaster, ...(await childrenOf(postmaster))]) {
        if (signal(pid, 'SIGSTOP')) frozen.push(pid)
      }
      for (const pid of await childrenOf(postmaster))
        if (!frozen.includes(pid) && signal(pid, 'SIGSTOP')) frozen.push(pid)
    },
    thaw,
    remove: async () => {
      thaw()
      await stop('immediate')
      await fs.rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 })
    },
  }
}

function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name)
  } catch {
    return false
  }
}

/** By what the kernel knows, since a server that is frozen cannot be asked; Linux only. */
async function childrenOf(parent: number): Promise<number[]> {
  const ids = (await fs.readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const parents = await Promise.all(
    ids.map(async (id) => (await fs.readFile(`/proc/${id}/stat`, 'utf8').catch(() => '')).split(') ')[1]),
  )
  return ids.filter((_, at) => Number(parents[at]?.split(' ')[1]) === parent).map(Number)
}

/** PostgreSQL refuses to run as root, so root's tests run it as another user. */
export async function serverUser(): Promise<{ uid?: number; gid?: number }> {
  if (process.getuid?.() !== 0) return {}
  const passwd = await fs.readFile('/etc/passwd', 'utf8')
  const [, uid, gid] = /^postgres:[^:]*:(\d+):(\d+):/m.exec(passwd) ?? /^nobody:[^:]*:(\d+):(\d+):/m.exec(passwd) ?? []
  return { uid: Number(uid), gid: Number(gid) }
}

export async function own(folder: string, { uid, gid }: { uid?: number; gid?: number }): Promise<void> {
  if (uid === undefined || gid === undefined) return
  await fs.chown(folder, uid, gid)
  for (const entry of await fs.readdir(folder, { recursive: true, withFileTypes: true }))
    await fs.chown(path.join(entry.parentPath, entry.name), uid, gid)
}

async function answers(url: string): Promise<boolean> {
  const client = postgres(url, { max: 1, connect_timeout: 2, onnotice: () => {}, ssl: 'prefer' })
  try {
    await client`select 1`
    return true
  } catch {
    await new Promise((resolve) => setTimeout(resolve, 50))
    return false
  } finally {
    await client.end({ timeout: 1 })
  }
}

async function freePort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  if (address === null || typeof address === 'string') throw new Error('no free port')
  return address.port
}
