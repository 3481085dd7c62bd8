import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import fs from 'node:fs/promises'
import net from 'node:net'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'
import type { Logger } from '../platform/logger.ts'
import { locateBinaries } from './postgres-binaries.ts'

export type EmbeddedOptions = { dataDir: string; logger: Logger; settings?: Record<string, string> }

/**
 * Starts the packaged PostgreSQL on `<dataDir>/postgres` and creates the cluster on first use. The caller holds the
 * lock on `dataDir`. First stops a server that a killed process left running.
 */
export async function startEmbeddedPostgres({ dataDir, logger, settings = {} }: EmbeddedOptions) {
  const cluster = path.join(dataDir, 'postgres')
  const passwordFile = path.join(dataDir, 'postgres-password')
  const runAs = process.getuid?.() === 0 ? await unprivilegedOwner(cluster) : {}
  const binaries = await locateBinaries({ forAnyUser: runAs.uid !== undefined })

  const password = await readOrCreatePassword(passwordFile)
  await stopLeftover(cluster, password, logger)
  if (!existsSync(path.join(cluster, 'PG_VERSION'))) await initialize({ cluster, binaries, password, runAs })

  const port = await freePort()
  const flags = { ...settings, port: String(port), listen_addresses: '127.0.0.1', unix_socket_directories: '' }
  const args = Object.entries(flags).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  const server = launch(binaries, 'postgres', { cluster, runAs, args })
  const adminUrl = `postgres://postgres:${password}@127.0.0.1:${port}/postgres`
  try {
    await waitUntilReady(adminUrl, server)
    await createDatabase(adminUrl)
  } catch (error) {
    server.child.kill('SIGKILL')
    throw new Error(`the embedded PostgreSQL did not start: ${server.output().slice(-2000)}`, { cause: error })
  }

  let stopping = false
  const { promise: ended, resolve } = Promise.withResolvers<string>()
  server.child.once('exit', (code, signal) => {
    if (!stopping)
      resolve(`the embedded PostgreSQL ended unexpectedly (${signal ?? code}): ${server.output().slice(-2000)}`)
  })
  return {
    /** Connection string of the `mediadock` database on 127.0.0.1. */
    url: adminUrl.replace(/postgres$/, 'mediadock'),
    /** Resolves with a reason if the server ends unexpectedly. */
    ended,
    stop: async () => {
      stopping = true
      await stop(server.child)
    },
  }
}

/** Connection string of the embedded server that another process runs on this folder, or undefined. */
export async function findEmbeddedPostgres(dataDir: string): Promise<string | undefined> {
  const password = await fs.readFile(path.join(dataDir, 'postgres-password'), 'utf8').catch(() => undefined)
  const running = await readPidFile(path.join(dataDir, 'postgres'))
  if (!password || !running) return undefined
  const url = `postgres://postgres:${password}@127.0.0.1:${running.port}/mediadock`
  return (await answers(url)) ? url : undefined
}

type Launched = { child: ChildProcess; output: () => string }
type RunAs = { uid?: number; gid?: number }
/** `input` is sent to the program's stdin. */
type Launch = { cluster: string; runAs: RunAs; args: string[]; input?: string }

/**
 * Starts a program of PostgreSQL on a cluster. On Linux the cluster is passed as the working directory, so that an
 * unprivileged user needs no permission on the folders above it, such as root's home. `detached` keeps Ctrl-C from
 * Postgres, which must outlive our shutdown.
 */
function launch(binaries: string, program: string, { cluster, runAs, args, input = '' }: Launch): Launched {
  // Postgres must not inherit the malloc threshold of this process (bin/mediadock.js).
  const { MALLOC_MMAP_THRESHOLD_: _, ...inherited } = process.env
  const env = { ...inherited, PGDATA: process.platform === 'linux' ? '/proc/self/cwd' : cluster }
  const child = spawn(path.join(binaries, 'bin', program), args, { ...runAs, cwd: cluster, env, detached: true })
  // A program that has ended takes no input. Its exit code is reported.
  child.stdin.on('error', () => {}).end(input)
  let output = ''
  const keep = (chunk: Buffer) => {
    output = (output + chunk.toString()).slice(-8000)
  }
  child.stdout.on('data', keep)
  child.stderr.on('data', keep)
  child.on('error', (error) => keep(Buffer.from(String(error))))
  // Stops the child whenever this process exits, except after kill -9.
  const endWithUs = () => child.kill('SIGINT')
  process.once('exit', endWithUs)
  child.once('exit', () => process.off('exit', endWithUs))
  return { child, output: () => output }
}

/**
 * PostgreSQL refuses to run as root. If this process is root, the server runs as the cluster's owner, or as `nobody`,
 * because initdb needs a user with a name.
 */
async function unprivilegedOwner(cluster: string): Promise<RunAs> {
  const owner = await fs.stat(cluster).catch(() => undefined)
  if (owner && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid }
  const passwd = await fs.readFile('/etc/passwd', 'utf8').catch(() => '')
  const [, uid, gid] = /^nobody:[^:]*:(\d+):(\d+):/m.exec(passwd) ?? []
  return { uid: Number(uid ?? 65_534), gid: Number(gid ?? 65_534) }
}

type Making = { cluster: string; binaries: string; password: string; runAs: RunAs }

/**
 * Creates the cluster in another folder and renames it. An interrupted run then leaves no cluster without a password.
 */
async function initialize({ cluster, ...how }: Making): Promise<void> {
  const at = { ...how, cluster: `${cluster}.new` }
  await removeFolder(at.cluster)
  await fs.mkdir(at.cluster, { recursive: true, mode: 0o700 })
  if (at.runAs.uid !== undefined && at.runAs.gid !== undefined) await fs.chown(at.cluster, at.runAs.uid, at.runAs.gid)

  const toEnd = async (program: string, run: Pick<Launch, 'args' | 'input'>) => {
    const { child, output } = launch(at.binaries, program, { ...at, ...run })
    const [code] = await once(child, 'exit')
    if (code !== 0) throw new Error(`${program} failed (${code}): ${output()}`)
  }
  const options = ['--username=postgres', '--auth=trust', '--encoding=UTF8', '--locale=C', '--no-instructions']
  await toEnd('initdb', { args: options })
  // In single-user mode, so that the server never listens without a password.
  const input = `alter role postgres password '${at.password}'\n`
  await toEnd('postgres', { args: ['--single', 'postgres'], input })
  await fs.writeFile(path.join(at.cluster, 'pg_hba.conf'), 'host all all 127.0.0.1/32 scram-sha-256\n')
  await removeFolder(cluster)
  await fs.rename(at.cluster, cluster)
}

/** Retries, because the initdb of a killed start may still be writing there. */
async function removeFolder(folder: string): Promise<void> {
  await fs.rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 })
}

async function waitUntilReady(url: string, server: Launched): Promise<void> {
  const deadline = Date.now() + 30_000
  const hasEnded = () => server.child.exitCode !== null || server.child.signalCode !== null
  while (Date.now() < deadline && !hasEnded()) {
    if (await answers(url)) return
    await delay(50)
  }
  throw new Error(hasEnded() ? 'the server ended at once' : 'the server did not answer in time')
}

async function createDatabase(adminUrl: string): Promise<void> {
  const client = postgres(adminUrl, { max: 1, onnotice: () => {} })
  try {
    const [known] = await client`select from pg_database where datname = 'mediadock'`
    if (!known) await client`create database mediadock`
  } finally {
    await client.end({ timeout: 5 })
  }
}

/** Fast shutdown, then immediate shutdown, then SIGKILL. None of them loses committed data. */
async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, 'exit')
  for (const signal of ['SIGINT', 'SIGQUIT', 'SIGKILL'] as const) {
    child.kill(signal)
    const ended = await Promise.race([gone, delay(signal === 'SIGINT' ? 4_000 : 2000, 'late', { ref: false })])
    if (ended !== 'late') return
  }
}

async function readOrCreatePassword(file: string): Promise<string> {
  const known = await fs.readFile(file, 'utf8').catch(() => undefined)
  if (known) return known
  const password = randomBytes(24).toString('hex')
  await fs.writeFile(file, password, { mode: 0o600 })
  return password
}

async function freePort(): Promise<number> {
  const server = net.createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  await once(server, 'close')
  if (address === null || typeof address === 'string') throw new Error('no free TCP port')
  return address.port
}

/**
 * Stops a server that a killed process left running. A server is ours if its working directory is the cluster, or if
 * it accepts our password. While it starts or stops, it accepts no password.
 */
export async function stopLeftover(cluster: string, password: string, logger: Logger): Promise<void> {
  const left = await readPidFile(cluster)
  if (!left) return
  const isOurs =
    (await worksIn(left.pid, cluster)) ||
    (await answers(`postgres://postgres:${password}@127.0.0.1:${left.port}/postgres`))
  if (!isOurs) return
  logger.warn({ pid: left.pid }, 'stopping a PostgreSQL that a killed run left behind')
  for (const signal of ['SIGINT', 'SIGQUIT'] as const) {
    process.kill(left.pid, signal)
    const deadline = Date.now() + 5000
    while (Date.now() < deadline) {
      // Postgres removes the pid file before it exits. In a container without an init, it remains as a zombie.
      if (!isAlive(left.pid) || (await readPidFile(cluster))?.pid !== left.pid) return
      await delay(50)
    }
  }
  throw new Error(`a PostgreSQL of an earlier run (pid ${left.pid}) does not stop. End it and start again.`)
}

/** True if this folder is the working directory of the process. Always false outside Linux. */
async function worksIn(pid: number, folder: string): Promise<boolean> {
  const theirs = await fs.readlink(`/proc/${pid}/cwd`).catch(() => undefined)
  return theirs !== undefined && theirs === (await fs.realpath(folder).catch(() => undefined))
}

/** Reads pid and port from the pid file of a running or killed server. */
export async function readPidFile(cluster: string): Promise<{ pid: number; port: number } | undefined> {
  const text = await fs.readFile(path.join(cluster, 'postmaster.pid'), 'utf8').catch(() => '')
  const lines = text.split('\n')
  const pid = Number(lines[0])
  const port = Number(lines[3])
  return pid > 0 && port > 0 ? { pid, port } : undefined
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

/** True if a server accepts this user and password now. */
export async function answers(url: string): Promise<boolean> {
  const client = postgres(url, { max: 1, connect_timeout: 2, onnotice: () => {} })
  try {
    await client`select 1`
    return true
  } catch {
    return false
  } finally {
    await client.end({ timeout: 1 })
  }
}
