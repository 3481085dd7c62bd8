import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { z } from 'zod'
import type { Figures } from './goals.ts'
import { connections, costOf, untilLanded, untilLogged, warmUp, withRig, type Rig } from './rig.ts'
import type { BenchServer } from './servers.ts'
import { print, table } from './tables.ts'

/** Counting and timing each statement has a cost, so it is enabled only here. */
export const profilingSettings = {
  shared_preload_libraries: 'pg_stat_statements',
  'pg_stat_statements.track_planning': 'on',
}

const microseconds = 1e6

/** Where the time and the bytes of a delivery go, under a load as fast as it is taken: by statement, by table, by room of the code. */
export async function benchProfile(server: BenchServer, { requests }: { requests: number }): Promise<Figures> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-bench-profile-'))
  try {
    const cost = await withRig(server, { profileFolder: folder }, async (rig) => {
      const { sql, receiver, generator } = rig
      await warmUp(rig)
      await untilLogged(sql)
      await sql`create extension pg_stat_statements`
      const before = await bytesByTable(rig)
      await sql`select pg_stat_statements_reset()`
      const load = await costOf(rig, async () => {
        const sent = await generator.run({ url: receiver.webhooksUrl, connections, requests })
        await untilLanded(sql)
        await untilLogged(sql)
        return sent
      })
      print(await statementsTable(rig, requests))
      print(diskTable(rig, before, await bytesByTable(rig), requests))
      return load
    })
    const each = (seconds: number) => (seconds / requests) * microseconds
    print(
      table(
        `CPU on ${server.words}, µs a delivery, at ${Math.round(cost.perSecond)} acknowledged a second`,
        ['', ''],
        [
          ['receiver', each(cost.receiverSeconds)],
          ['Postgres, all of its processes', each(cost.postgresSeconds)],
        ],
      ),
    )
    print(await roomsTable(folder, server))
  } finally {
    await fs.rm(folder, { recursive: true, force: true })
  }
  return {}
}

/** By what stands in them alone; the first that fits. */
const statements: readonly [words: string, mark: RegExp][] = [
  ['accept: deliveries and their place in the queue', /insert into mediadock\.deliveries/],
  ['land, the general statement', /new_versions as \(/],
  ['land, the ordinary statement', /insert into mediadock\.requests as r/],
  ['log of arrivals', /insert into mediadock\.arrivals/],
  ['claim from the queue', /update mediadock\.inbox/],
  ['claim what is due to be polled', /update mediadock\.requests/],
  ['of the bench itself', /pg_stat_statements|exists \(select from mediadock\.(inbox|arrivals)/],
]

async function statementsTable({ sql, server }: Rig, requests: number): Promise<string> {
  const rows = await sql<{ query: string; calls: number; ms: number; planning: number; wal: number }[]>`
    select query, calls::int, total_exec_time as ms, total_plan_time as planning, wal_bytes::float8 as wal
    from pg_stat_statements where dbid = (select oid from pg_database where datname = current_database())`
  const named = rows.map((row) => ({
    ...row,
    words: statements.find(([, mark]) => mark.test(row.query))?.[0] ?? 'all others',
  }))
  const groups = [...Map.groupBy(named, ({ words }) => words)].map(([words, group]) => {
    const sum = (pick: (row: (typeof named)[number]) => number) => group.reduce((all, row) => all + pick(row), 0)
    return [
      words,
      sum(({ calls }) => calls),
      (sum(({ ms }) => ms) * 1000) / requests,
      (sum(({ planning }) => planning) * 1000) / requests,
      sum(({ wal }) => wal) / requests,
    ] as const
  })
  return table(
    `Statements on ${server.words}: what each took for a delivery`,
    ['', 'run', 'µs (waiting for locks and the other processes included)', 'of planning, µs', 'bytes of WAL'],
    groups.toSorted(([, , a], [, , b]) => b - a),
  )
}

type TableBytes = { name: string; heap: number; indexes: number }

/** Partitions count as their table. */
async function bytesByTable({ sql }: Rig): Promise<TableBytes[]> {
  return sql<TableBytes[]>`
    select regexp_replace(relname, '_[0-9]{8}$', '') as name, sum(pg_table_size(oid))::float8 as heap, sum(pg_indexes_size(oid))::float8 as indexes
    from pg_class where relnamespace = 'mediadock'::regnamespace and relkind = 'r' group by 1`
}

function diskTable(
  { server }: Rig,
  before: readonly TableBytes[],
  after: readonly TableBytes[],
  requests: number,
): string {
  const rows = after
    .map(({ name, heap, indexes }) => {
      const old = before.find((one) => one.name === name)
      return [name, (heap - (old?.heap ?? 0)) / requests, (indexes - (old?.indexes ?? 0)) / requests] as const
    })
    .filter(([, heap, indexes]) => heap + indexes >= 1)
  const sum = (at: 1 | 2) => rows.reduce((all, row) => all + row[at], 0)
  return table(
    `Bytes on disk for a delivery on ${server.words}`,
    ['table', 'rows', 'indexes'],
    [...rows.toSorted((a, b) => b[1] + b[2] - a[1] - a[2]), ['all', sum(1), sum(2)]],
  )
}

const profileSchema = z.object({
  nodes: z.array(z.object({ id: z.number(), callFrame: z.object({ functionName: z.string(), url: z.string() }) })),
  samples: z.array(z.number()),
  timeDeltas: z.array(z.number()),
})

/** Self time by where the code stands; what a profile of a whole life has besides, its start and idle time, is left out. */
async function roomsTable(folder: string, server: BenchServer): Promise<string> {
  const times = new Map<string, number>()
  for (const file of await fs.readdir(folder)) {
    const profile = profileSchema.parse(JSON.parse(await fs.readFile(path.join(folder, file), 'utf8')))
    const places = new Map(profile.nodes.map(({ id, callFrame }) => [id, placeOf(callFrame)]))
    for (const [at, id] of profile.samples.entries()) {
      const place = places.get(id) ?? '(program)'
      times.set(place, (times.get(place) ?? 0) + (profile.timeDeltas[at] ?? 0))
    }
  }
  for (const idle of ['(idle)', '(root)']) times.delete(idle)
  const all = [...times.values()].reduce((sum, time) => sum + time, 0)
  const rows = [...times].map(([place, time]) => [place, `${((time / all) * 100).toFixed(1)} %`, time] as const)
  return table(
    `The receiver's time on ${server.words}, by where the code stands`,
    ['', 'of all'],
    rows
      .toSorted((a, b) => b[2] - a[2])
      .filter(([, , time]) => time / all >= 0.005)
      .map(([place, share]) => [place, share]),
  )
}

function placeOf({ functionName, url }: { functionName: string; url: string }): string {
  const [, inPackage] = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(url) ?? []
  if (inPackage) return inPackage
  const [, inSource] = /\/src\/((?:receiver\/)?[^/]+)/.exec(url) ?? []
  if (inSource) return `src/${inSource}`
  const [, inNode] = /^node:(?:internal\/)?([a-z_]+)/.exec(url) ?? []
  if (inNode) return `node:${inNode}`
  // Without a place: what the engine and the system do for it.
  return functionName || '(program)'
}
