import { hash } from 'node:crypto'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'

export class DataDirInUseError extends Error {
  override name = 'DataDirInUseError'
  code = 'data_dir_in_use' as const
}

/**
 * Locks a data folder for this process, or throws DataDirInUseError. The lock is a listening local socket. The kernel
 * closes it when the process ends, so `kill -9` leaves no stale lock.
 */
export async function lockDataDir(dataDir: string): Promise<() => Promise<void>> {
  await fs.mkdir(dataDir, { recursive: true })
  const name = `mediadock-${hash('sha256', await fs.realpath(dataDir)).slice(0, 24)}`
  const server = net.createServer((socket) => socket.destroy())
  if (!(await tryListen(server, socketPath(name)))) {
    throw new DataDirInUseError(`${dataDir} is in use by a running mediadock: stop it first`)
  }
  server.unref()
  return async () => {
    server.close()
    await once(server, 'close')
  }
}

async function tryListen(server: net.Server, at: string): Promise<boolean> {
  if (await listens(server, at)) return true
  if (await someoneAnswers(at)) return false
  // On macOS and BSD the socket file outlives its process. No process answers on it, so remove it.
  if (path.isAbsolute(at) && process.platform !== 'win32') await fs.rm(at, { force: true })
  return listens(server, at)
}

async function listens(server: net.Server, at: string): Promise<boolean> {
  try {
    server.listen(at)
    await once(server, 'listening')
    return true
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EADDRINUSE') return false
    throw error
  }
}

async function someoneAnswers(at: string): Promise<boolean> {
  const socket = net.connect(at)
  try {
    await once(socket, 'connect')
    return true
  } catch {
    return false
  } finally {
    socket.destroy()
  }
}

function socketPath(name: string): string {
  if (process.platform === 'linux') return `\0${name}`
  if (process.platform === 'win32') return `\\\\.\\pipe\\${name}`
  return path.join(os.tmpdir(), `${name}.sock`)
}
