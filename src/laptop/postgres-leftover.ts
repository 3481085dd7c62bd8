import fs from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'
import type { Logger } from '../platform/logger.ts'

/**
 * Only a server that takes our password on the port it names, or that works in
 * this very folder (one that is still starting or stopping), is ours to stop.
 */
export async function stopLeftover(cluster: string, password: string, logger: Logger): Promise<void> {
  const left = await readPidFile(cluster)
  if (!left) return
  const isOurs =
    (await worksIn(left.pid, cluster)) ||
    (await answers(`postgres://postgres:${password}@127.0.0.1:${left.port}/postgres`))
  if (!isOurs) return
  logger.warn({ pid: left.pid }, 'stopping the PostgreSQL that an interrupted run left behind')
  for (const signal of ['SIGINT', 'SIGQUIT'] as const) {
    process.kill(left.pid, signal)
    const deadline = Date.now() + 5000
    while (Date.now() < deadline) {
      // The file goes first, and in a container without an init the process stays as a zombie.
      if (!isAlive(left.pid) || (await readPidFile(cluster))?.pid !== left.pid) return
      await delay(50)
    }
  }
  throw new Error(`a PostgreSQL of an earlier run (pid ${left.pid}) does not stop: end it and start again`)
}

/** Linux only; elsewhere there is no asking. */
async function worksIn(pid: number, folder: string): Promise<boolean> {
  const [theirs, ours] = await Promise.all([fs.readlink(`/proc/${pid}/cwd`), fs.realpath(folder)]).catch(() => [
    undefined,
    undefined,
  ])
  return theirs !== undefined && theirs === ours
}

/** What a running server, or one that was killed, says of itself. */
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

/** Whether a server takes this user and password, now. */
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
