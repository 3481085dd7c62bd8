import { setTimeout as delay } from 'node:timers/promises'
import postgres from 'postgres'
import { startReceiverProcess, type Contender, type Receiver, type ReceiverOptions } from './contenders.ts'
import { startLoadGenerator, type LoadGenerator } from './load.ts'
import { cpuSecondsOf, cpuSecondsOfServer } from './processes.ts'
import { startProviderStand, type ProviderStand } from './provider-stand.ts'
import type { BenchServer } from './servers.ts'
import { say } from './tables.ts'

/** Everything that one measurement needs: a receiver in production mode on a new database, a sender, and a provider. */
export type Rig = {
  server: BenchServer
  databaseUrl: string
  sql: postgres.Sql
  receiver: Receiver
  provider: ProviderStand
  generator: LoadGenerator
  /** Another receiver on the same database. */
  startReceiver: (options?: Partial<ReceiverOptions>) => Promise<Receiver>
}

/** Beyond any sender: within the quota, however much has to be fetched. */
export const unlimitedFetching = {
  FETCH_RATE_PER_MINUTE: '1000000',
  FETCH_RATE_PER_ACCOUNT_PER_MINUTE: '1000000',
}
export const connections = 256

export async function withRig<T>(
  server: BenchServer,
  given: Partial<ReceiverOptions>,
  work: (rig: Rig) => Promise<T>,
): Promise<T> {
  const databaseUrl = given.databaseUrl ?? (await server.createDatabase())
  const sql = postgres(databaseUrl, { max: 2, onnotice: () => {} })
  const generator = startLoadGenerator()
  const provider = await startProviderStand()
  const receivers: Receiver[] = []
  const startReceiver = async (options: Partial<ReceiverOptions> = {}) => {
    const receiver = await startReceiverProcess({ databaseUrl, providerUrl: provider.url, ...given, ...options })
    receivers.push(receiver)
    return receiver
  }
  try {
    return await work({ server, databaseUrl, sql, receiver: await startReceiver(), provider, generator, startReceiver })
  } finally {
    generator.stop()
    await Promise.all(receivers.map((receiver) => receiver.stop()))
    await provider.stop()
    await sql.end({ timeout: 5 })
    // Report the earlier failure, not that the server stopped with it.
    if (given.databaseUrl === undefined)
      await server
        .dropDatabase(databaseUrl)
        .catch((error: unknown) => say(`${databaseUrl} could not be dropped: ${String(error)}`))
  }
}

/** A first load that is not counted. */
export async function warmUp({ generator, receiver, sql }: Rig, requests = 15_000): Promise<void> {
  await generator.run({ url: receiver.webhooksUrl, connections, requests })
  await untilLanded(sql)
}

const landMs = 300_000

export async function waitingOf(sql: postgres.Sql): Promise<number> {
  const [row] = await sql<{ n: number }[]>`select count(*)::int as n from mediadock.inbox`
  return row?.n ?? NaN
}

/** Waits until the receiver has landed everything, so that the rest does not burden the next turn. */
export async function untilLanded(sql: postgres.Sql): Promise<void> {
  const deadline = performance.now() + landMs
  for (;;) {
    const [row] = await sql<{ waiting: boolean }[]>`select exists (select from mediadock.inbox) as waiting`
    if (!row?.waiting) return
    if (performance.now() > deadline) throw new Error(`the inbox was not empty after ${landMs / 1000} s`)
    await delay(20)
  }
}

/** Every result is complete: what is still to be polled would be polled before what is measured next. */
export async function untilComplete(sql: postgres.Sql): Promise<void> {
  await untilLanded(sql)
  const deadline = performance.now() + landMs
  for (;;) {
    const [row] = await sql<{ waiting: boolean }[]>`
      select exists (select from mediadock.requests where landed_at is not null and next_poll_at is not null) as waiting`
    if (!row?.waiting) return
    if (performance.now() > deadline) throw new Error(`results were not complete after ${landMs / 1000} s`)
    await delay(20)
  }
}

/** The log of arrivals is written behind: what it still holds is neither on disk nor paid for yet. */
export async function untilLogged(sql: postgres.Sql): Promise<void> {
  const deadline = performance.now() + landMs
  for (;;) {
    const [row] = await sql<{ logged: boolean }[]>`
      select exists (select from mediadock.arrivals a where a.delivery_id = d.id) as logged
      from mediadock.deliveries d order by received_at desc nulls last limit 1`
    if (!row || row.logged) return
    if (performance.now() > deadline) throw new Error(`the last arrival was not logged after ${landMs / 1000} s`)
    await delay(100)
  }
}

export type Cost = { receiverSeconds: number; postgresSeconds: number }

/** CPU that the receiver, or another contender, and Postgres took for the work. */
export async function costOf<T>(
  { receiver, server }: { receiver: Pick<Contender, 'pid'>; server: BenchServer },
  work: () => Promise<T>,
): Promise<T & Cost> {
  const look = async () => [await cpuSecondsOf(receiver.pid), await cpuSecondsOfServer(server.pid)] as const
  const [receiverBefore, postgresBefore] = await look()
  const result = await work()
  const [receiverAfter, postgresAfter] = await look()
  return { ...result, receiverSeconds: receiverAfter - receiverBefore, postgresSeconds: postgresAfter - postgresBefore }
}

/** The value of a metric without labels that the receiver exposes. */
export async function metricOf({ consoleUrl }: Receiver, name: string): Promise<number> {
  const text = await (await fetch(new URL('metrics', consoleUrl))).text()
  return Number(new RegExp(`^${name} (.+)$`, 'm').exec(text)?.[1] ?? NaN)
}
