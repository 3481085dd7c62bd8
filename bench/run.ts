import { parseArgs } from 'node:util'
import { benchBacklog } from './backlog.ts'
import { benchConsole } from './console.ts'
import { benchFeed } from './feed.ts'
import { goalsTable, type Figures } from './goals.ts'
import { benchGrowth } from './growth.ts'
import { benchOutages } from './outages.ts'
import { benchProfile, profilingSettings } from './profile.ts'
import { serverNames, startServer, type BenchServer, type ServerName } from './servers.ts'
import { benchSoak } from './soak.ts'
import { benchSustained } from './sustained.ts'
import { machine, print } from './tables.ts'
import { benchThroughput } from './throughput.ts'
import { benchWay } from './way.ts'

/** `npm run bench [-- <what>] [--quick] [--server embedded|packaged] [--set <setting>=<value>]`: see docs/benchmarks.md. */
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1))
const [first = ''] = process.argv.slice(2)
if (first === 'console') await benchConsole(process.argv.slice(3))
else
  await run(first.startsWith('-') ? process.argv.slice(2) : process.argv.slice(3), first.startsWith('-') ? '' : first)

async function run(args: readonly string[], what: string): Promise<void> {
  const { values, positionals } = parseArgs({
    args: [...args],
    options: {
      quick: { type: 'boolean', default: false },
      server: { type: 'string' },
      set: { type: 'string', multiple: true, default: [] },
      sizes: { type: 'string' },
    },
    allowPositionals: true,
  })
  const { quick } = values
  const outages = { hangRounds: quick ? 2 : 5, kills: quick ? 2 : 5 }
  const search = quick
    ? { probes: 5, probeSeconds: 3, confirmSeconds: 10, latencySeconds: 5 }
    : { probes: 6, probeSeconds: 5, confirmSeconds: 30, latencySeconds: 10 }
  const long = { probes: 7, probeSeconds: 8, confirmSeconds: 60, latencySeconds: 30 }
  const growth = quick
    ? { sizes: [200_000], rounds: 3, secondsPerRound: 3 }
    : { sizes: [1_000_000, 10_000_000], rounds: 5, secondsPerRound: 8 }
  const parts: Record<string, (server: BenchServer) => Promise<Figures>> = {
    '': async (server) => ({
      ...(await benchThroughput(
        server,
        quick
          ? { rounds: 3, secondsPerRound: 1.5, crowds: [256] }
          : { rounds: 5, secondsPerRound: 3, crowds: [64, 256] },
      )),
      ...(await benchBacklog(server, quick ? { deliveries: 10_000, rounds: 1 } : { deliveries: 30_000, rounds: 3 })),
      ...(await benchSustained(server, search)),
      ...(quick ? {} : await benchOutages(server, { hangRounds: 2, kills: 1, awaySeconds: 20 })),
    }),
    sustained: (server) => benchSustained(server, quick ? search : long),
    backlog: (server) =>
      benchBacklog(server, quick ? { deliveries: 20_000, rounds: 1 } : { deliveries: 100_000, rounds: 3 }),
    growth: (server) =>
      benchGrowth(server, values.sizes ? { ...growth, sizes: values.sizes.split(',').map(Number) } : growth),
    soak: (server) =>
      benchSoak(server, { ...(quick ? search : long), minutes: Number(positionals[0] ?? (quick ? 1 : 30)) }),
    feed: (server) =>
      benchFeed(server, { ...search, rounds: quick ? 3 : 7, requestsPerRound: quick ? 20_000 : 40_000 }),
    profile: (server) => benchProfile(server, { requests: quick ? 20_000 : 60_000 }),
    way: benchWay,
    outages: (server) => benchOutages(server, { ...outages, awaySeconds: Number(positionals[0] ?? (quick ? 20 : 60)) }),
  }
  const part = parts[what]
  if (!part) {
    process.stderr.write(
      `bench: unknown "${what}": ${Object.keys(parts).filter(Boolean).join(', ')}, console, or nothing\n`,
    )
    process.exit(2)
  }
  print(machine())
  const settings = Object.fromEntries(
    values.set.map((one) => [one.split('=', 1)[0] ?? '', one.slice(one.indexOf('=') + 1)]),
  )
  const measured: Partial<Record<ServerName, Figures>> = {}
  for (const name of serverNames) {
    if (values.server !== undefined && values.server !== name) continue
    const server = await startServer(name, { ...(what === 'profile' ? profilingSettings : {}), ...settings })
    if (!server) {
      print('\nNo packaged PostgreSQL 15 or newer is installed on this machine: its tables are left out.')
      continue
    }
    try {
      measured[name] = await part(server)
    } finally {
      await server.stop()
    }
  }
  print(goalsTable(measured, values.set))
  print(machine())
}
