import { setTimeout as delay } from 'node:timers/promises'
import { sql } from 'drizzle-orm'
import { expect, it, onTestFinished } from 'vitest'
import { withDeadline } from '../../../src/platform/deadline.ts'
import { createPool, type Pool } from '../../../src/platform/postgres/postgres.ts'
import { executePrepared } from '../../../src/platform/postgres/prepared.ts'
import { long } from '../../chaos/length.ts'
import { withTestDatabase, usualServers } from '../../support/database.ts'
import { describeOnPackaged } from '../../support/own-packaged-postgres.ts'
import { withTlsPostgres } from '../../support/tls-postgres.ts'
import { type Cut, startCuttingProxy } from '../support/cutting-proxy.ts'

const abreast = 20
const whole = [{ n: 1 }, { n: 2 }, { n: 3 }, { n: 4 }, { n: 5 }]

/** Each way in which a statement is run: described first, prepared, in one message, on a reserved connection. */
const ways: Record<string, (pool: Pool) => Promise<object[]>> = {
  plain: async ({ db }) => [...(await db.execute(sql`select g as n from generate_series(1, ${5}::int) g`))],
  prepared: ({ db }) => executePrepared(db, sql`select g as n from generate_series(1, ${5}::int) g`),
  simple: async ({ client }) => [...(await client.unsafe('select g as n from generate_series(1, 5) g'))],
  reserved: async ({ client }) => {
    const connection = await client.reserve()
    try {
      return [...(await connection.unsafe('select g as n from generate_series(1, 5) g'))]
    } finally {
      connection.release()
    }
  },
}

/** After every so many bytes of a connection's first answers: in its greeting, its types, before, in and after the rows. The short form takes the one way to cut or the other at each. */
function cutPoints(bytes: number): Cut[] {
  const points = [
    ...Array.from({ length: 24 }, (_, at) => Math.floor((bytes * at) / 24)),
    ...Array.from({ length: 36 }, (_, at) => Math.max(0, bytes - at * 5)),
  ]
  const hows = ['reset', 'end'] as const
  return points.flatMap((after, at) =>
    hows.filter((_how, which) => long || which === at % 2).map((how) => ({ after, how })),
  )
}

/**
 * Cuts a connection at every point of its first statement. The statement must return its rows or an error, and the pool
 * must continue.
 */
async function cutEverywhere(url: string, names = Object.keys(ways)): Promise<void> {
  for (const [name, run] of Object.entries(ways).filter(([way]) => names.includes(way))) {
    const measuring = await startCuttingProxy(url)
    const measured = createPool({ url: measuring.url, max: 1 })
    expect(await run(measured)).toEqual(whole)
    const points = cutPoints(measuring.answered() + 20)
    await measured.close()
    await Promise.all(
      Array.from({ length: abreast }, async (_, lane) => {
        const proxy = await startCuttingProxy(url)
        const pool = createPool({ url: proxy.url, max: 1 })
        for (const cut of points.filter((_point, at) => at % abreast === lane)) {
          proxy.cutAfter(cut)
          const [end] = await Promise.allSettled([
            withDeadline(run(pool), 20_000, `${name}, cut after ${cut.after} bytes by ${cut.how}`),
          ])
          if (end.status === 'fulfilled') expect(end.value, `${name} ${JSON.stringify(cut)}`).toEqual(whole)
          else expect(end.reason, `${name} ${JSON.stringify(cut)}`).not.toMatchObject({ code: 'deadline_exceeded' })
          proxy.cutAfter(undefined)
          proxy.resetAll()
          await delay(0)
        }
        const [last] = await Promise.allSettled([run(pool)])
        // The reset may hit the first statement after it. The next one has a new connection.
        if (last.status === 'rejected') expect(await run(pool)).toEqual(whole)
        await pool.close()
      }),
    )
  }
}

it.each(usualServers)(
  'a statement whose connection is cut at any point ends with its rows or an error (%s)',
  async (server) => {
    await cutEverywhere((await withTestDatabase(server)).url)
  },
  120_000,
)

describeOnPackaged('behind TLS', () => {
  it('a statement whose connection is cut at any point ends with its rows or an error', async () => {
    const server = await withTlsPostgres()
    await cutEverywhere(server.urlWith({ sslmode: 'require' }), long ? undefined : ['prepared'])
  })

  it.each(['plain', 'tls'])(
    "no statement under resets ends with another statement's answer (%s)",
    async (kind) => {
      const server = await withTlsPostgres()
      const proxy = await startCuttingProxy(
        kind === 'tls' ? server.urlWith({ sslmode: 'require' }) : (await withTestDatabase('packaged')).url,
      )
      const pool = createPool({ url: proxy.url, max: 4 })
      onTestFinished(() => pool.close())
      const resets = setInterval(proxy.resetAll, 250)
      onTestFinished(() => clearInterval(resets))
      const count = { answered: 0, failed: 0 }
      const until = performance.now() + 5000
      const isOver = () => (long ? performance.now() > until : count.answered > 100 && count.failed > 10)
      const ask = async (turn: number): Promise<void> => {
        const [end] = await Promise.allSettled([
          withDeadline(pool.db.execute<{ n: number }>(sql`select ${turn}::int as n`), 15_000, 'a statement'),
        ])
        if (end.status === 'rejected') {
          expect(end.reason).not.toMatchObject({ code: 'deadline_exceeded' })
          count.failed += 1
        } else {
          expect([...end.value]).toEqual([{ n: turn }])
          count.answered += 1
        }
      }
      await Promise.all(
        Array.from({ length: 16 }, async () => {
          for (let turn = 1; !isOver(); turn += 1) await ask(turn)
        }),
      )
      expect(count.answered).toBeGreaterThan(10)
      expect(count.failed).toBeGreaterThan(10)
    },
    60_000,
  )
})
