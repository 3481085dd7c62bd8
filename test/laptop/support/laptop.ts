import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import postgres from 'postgres'
import { findEmbeddedPostgres } from '../../../src/laptop/embedded-postgres.ts'
import { killAllIn, processesIn, startProcess, type TestProcess } from '../../platform/support/processes.ts'
import { freePort } from '../../provider/support/free-port.ts'
import { childEnv } from '../../support/child-env.ts'

const cli = path.resolve(import.meta.dirname, '../../../src/cli.ts')
const main = path.resolve(import.meta.dirname, '../../../src/main.ts')

/** A folder as `npm start` finds it on a fresh machine, with free ports. */
export type Laptop = {
  folder: string
  dataDir: string
  ports: Record<PortSetting, number>
  /** `node src/main.ts`, without any setting but the ports and what is given. */
  start: (env?: Record<string, string>, what?: string) => TestProcess
  /** `mediadock …` in the folder, without any setting. */
  command: (...args: string[]) => TestProcess
  /** The same, up. */
  up: (env?: Record<string, string>) => Promise<TestProcess>
  /** Asks the embedded PostgreSQL that runs in the folder. */
  query: <T>(work: (sql: postgres.Sql) => Promise<T>) => Promise<T>
  serverPid: () => Promise<number>
  processes: () => Promise<number[]>
  remove: () => Promise<void>
}

const portSettings = ['PORT', 'INTERNAL_PORT', 'PROVIDER_PORT', 'PROVIDER_CONSOLE_PORT'] as const
export type PortSetting = (typeof portSettings)[number]

export async function openLaptop(): Promise<Laptop> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-start-'))
  const dataDir = path.join(folder, '.data')
  // Asked for one after another, the same port may be free twice.
  const free = new Set<number>()
  while (free.size < portSettings.length) free.add(await freePort())
  const [PORT = 0, INTERNAL_PORT = 0, PROVIDER_PORT = 0, PROVIDER_CONSOLE_PORT = 0] = free
  const ports = { PORT, INTERNAL_PORT, PROVIDER_PORT, PROVIDER_CONSOLE_PORT }
  const settings = Object.fromEntries(portSettings.map((name) => [name, String(ports[name])]))
  const start: Laptop['start'] = (env = {}, what) =>
    startProcess(process.execPath, what === undefined ? [main] : [main, what], {
      cwd: folder,
      env: { ...childEnv, ...settings, ...env },
    })
  return {
    folder,
    dataDir,
    ports,
    start,
    command: (...args) => startProcess(process.execPath, [cli, ...args], { cwd: folder, env: childEnv }),
    up: async (env) => {
      const program = start(env)
      await program.says(/Ctrl-C stops all of it/)
      return program
    },
    query: async (work) => {
      const url = await findEmbeddedPostgres(dataDir)
      if (url === undefined) throw new Error('no PostgreSQL runs in the folder')
      const sql = postgres(url, { max: 1, onnotice: () => {} })
      try {
        return await work(sql)
      } finally {
        await sql.end({ timeout: 1 })
      }
    },
    serverPid: async () =>
      Number((await fs.readFile(path.join(dataDir, 'postgres/postmaster.pid'), 'utf8')).split('\n')[0]),
    processes: () => processesIn(folder),
    remove: async () => {
      await killAllIn(folder)
      await fs.rm(folder, { recursive: true, force: true, maxRetries: 10 })
    },
  }
}

/** The request of the curl that a start prints. */
export function printedRequest(output: string): { url: string; headers: Record<string, string>; body: string } {
  const [, command = ''] = /^ {2}curl ((?:.*\\\n)*.*)$/m.exec(output) ?? []
  const [, url = ''] = /(http:\/\/\S+)/.exec(command) ?? []
  const headers = Object.fromEntries(
    Array.from(command.matchAll(/-H '([^:]+): ([^']+)'/g), ([, name = '', value = '']) => [name, value]),
  )
  const [, body = ''] = /-d '([^']+)'/.exec(command) ?? []
  return { url, headers, body }
}
