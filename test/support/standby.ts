import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import postgres from 'postgres'
import { inject, onTestFinished } from 'vitest'
import { eventually } from './eventually.ts'
import { startPackagedPostgres, type PackagedPostgres } from './packaged-postgres.ts'
import { quickFolder } from './quick-folder.ts'

const run = promisify(execFile)
const hba = ['host all all 127.0.0.1/32 scram-sha-256', 'host replication all 127.0.0.1/32 scram-sha-256']

/** Fills the folder with a copy of the primary's data that follows it. */
async function copyFrom(primary: PackagedPostgres, dataDir: string): Promise<void> {
  await fs.rm(dataDir, { recursive: true, force: true })
  await run(path.join(inject('packagedBinaries'), 'pg_basebackup'), [
    '-d',
    primary.url,
    '-D',
    dataDir,
    '-R',
    '-c',
    'fast',
    '--no-sync',
  ])
  await fs.chmod(dataDir, 0o700)
  // Whom the primary waits for is not the copy's to wait for, once that is the primary.
  const settings = path.join(dataDir, 'postgresql.auto.conf')
  const lines = (await fs.readFile(settings, 'utf8'))
    .split('\n')
    .filter((line) => !line.startsWith('synchronous_standby_names'))
  await fs.writeFile(settings, lines.join('\n'))
}

export type Pair = { primary: PackagedPostgres; standby: PackagedPostgres }

/** A primary and a standby that follows it, for one test. */
export async function withStandby(settings: Record<string, string> = {}): Promise<Pair> {
  const pair = await startPair(settings)
  onTestFinished(() => removePair(pair))
  return pair
}

/** The same for several tests of a file. */
export async function startPair(settings: Record<string, string> = {}): Promise<Pair> {
  const options = {
    binaries: inject('packagedBinaries'),
    template: inject('packagedTemplate'),
    within: await quickFolder(),
    hba,
    settings,
  }
  const primary = await startPackagedPostgres(options)
  const standby = await startPackagedPostgres({ ...options, prepare: (dataDir) => copyFrom(primary, dataDir) })
  return { primary, standby }
}

export async function removePair({ primary, standby }: Pair): Promise<void> {
  await standby.remove()
  await primary.remove()
}

/** From now on the primary's commits wait for the standby, which is there already when this settles. */
export async function waitForStandby(primary: PackagedPostgres): Promise<void> {
  await asAdmin(primary.url, async (admin) => {
    await admin.unsafe(`alter system set synchronous_standby_names = '*'`)
    await admin`select pg_reload_conf()`
    await eventually(
      async () => (await admin`select from pg_stat_replication where sync_state = 'sync'`).length === 1,
      20_000,
    )
  })
}

/** The standby becomes the primary. */
export async function promote(standby: PackagedPostgres): Promise<void> {
  await asAdmin(standby.url, (admin) => admin`select pg_promote(true, 30)`)
}

/** A primary that was lost comes back, on its own port, as the standby of the one that took its place. */
export async function rejoin(lost: PackagedPostgres, primary: PackagedPostgres): Promise<void> {
  await lost.replaceData((dataDir) => copyFrom(primary, dataDir))
  await lost.start()
}

async function asAdmin(url: string, work: (admin: postgres.Sql) => Promise<unknown>): Promise<void> {
  const admin = postgres(url, { max: 1, onnotice: () => {} })
  try {
    await work(admin)
  } finally {
    await admin.end({ timeout: 5 })
  }
}
