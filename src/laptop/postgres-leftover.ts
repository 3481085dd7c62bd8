import fs from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'
import type { Logger } from '../platform/logger.ts'

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
  const [theirs, ours] = await Promise.all([fs.readlink(`/proc/${pid}/cwd`), fs.realpath(folder)]).catch(() => [
    undefined,
    undefined,
  ])
  return theirs !== undefined && theirs === ours
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
