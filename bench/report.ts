import os from 'node:os'
import type { Landings } from './landing-latency.ts'
import { medianOf, medianRatio, type Row } from './throughput.ts'

/** The tables of docs/benchmarks.md, ratios first: they are what another machine can be held to. */
export function report(rows: readonly Row[], landings: Landings): string {
  const { samples, fromAcknowledged, fromSent } = landings
  const latency = (what: string, { p50Ms, p99Ms }: { p50Ms: number; p99Ms: number }) =>
    `| ${what} | ${p50Ms.toFixed(1)} | ${p99Ms.toFixed(1)} |`
  return [
    `${os.availableParallelism()} cores, Node ${process.version}, ${rows[0]?.rounds.length} rounds in turn, medians`,
    '',
    '| connections | receiver / Express without a database | receiver / itself with one statement per request | receiver / one insert per request and nothing else |',
    '|---|---|---|---|',
    ...[...Map.groupBy(rows, ({ connections }) => connections)].map(ratios),
    '',
    '| connections | | deliveries/s | p50 ms | p99 ms |',
    '|---|---|---|---|---|',
    ...rows.map(absolute),
    '',
    `| one delivery at a time, ${samples} of them | p50 ms | p99 ms |`,
    '|---|---|---|',
    latency('from its 200 to its row of results', fromAcknowledged),
    latency('from sending it to its row of results', fromSent),
    '',
  ].join('\n')
}

function ratios([connections, [receiver, ...others]]: [number, Row[]]): string {
  const cells = others.map((other) => (receiver ? medianRatio(receiver, other).toFixed(2) : ''))
  return `| ${[connections, ...cells].join(' | ')} |`
}

function absolute({ name, connections, rounds }: Row): string {
  const { perSecond, p50Ms, p99Ms } = medianOf(rounds)
  return `| ${[connections, name, Math.round(perSecond), p50Ms.toFixed(1), p99Ms.toFixed(1)].join(' | ')} |`
}
