import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { withDeadline } from '../../../src/platform/deadline.ts'
import { isOutage } from '../../../src/platform/postgres/errors.ts'
import { createPool, type Pool } from '../../../src/platform/postgres/postgres.ts'
import { explainPostgres } from '../../../src/platform/postgres/words.ts'
import { eventually } from '../../support/eventually.ts'
import { describeOnPackaged, withPackagedPostgres } from '../../support/own-packaged-postgres.ts'
import { promote, removePair, startPair, type Pair } from '../../support/standby.ts'
import { startCuttingProxy } from '../support/cutting-proxy.ts'
import { startPostgresProxy } from '../support/postgres-proxy.ts'
import { startRefusingPooler } from '../support/refusing-pooler.ts'

function poolOver(hosts: readonly string[], attributes: string, max = 10): Pool {
  const [first = '', ...more] = hosts
  const url = new URL(first)
  const list = [url.host, ...more.map((host) => new URL(host).host)].join(',')
  const pool = createPool({
    url: `postgres://${url.username}:${url.password}@${list}/postgres?target_session_attrs=${attributes}`,
    max,
  })
  onTestFinished(() => pool.close())
  return pool
}

const isStandby = async (pool: Pool) =>
  (await pool.client.unsafe('select pg_is_in_recovery() as standby, pg_sleep(0.01)'))[0]?.['standby']

describeOnPackaged('several hosts', () => {
  let pair: Pair
  beforeAll(async () => {
    pair = await startPair()
  })
  afterAll(() => removePair(pair))

  it('with read-write finds the primary in any order, with read-only the standby', async () => {
    const { primary, standby } = pair
    for (const hosts of [
      [primary.url, standby.url],
      [standby.url, primary.url],
    ]) {
      for (const [attributes, expected] of [
        ['read-write', false],
        ['primary', false],
        ['standby', true],
        ['read-only', true],
      ] as const) {
        const pool = poolOver(hosts, attributes)
        const answers = await Promise.all(Array.from({ length: 40 }, () => isStandby(pool)))
        expect(new Set(answers), attributes).toEqual(new Set([expected]))
      }
    }
  })

  it('fail the statement with the reason if none matches or none answers', async () => {
    const server = await withPackagedPostgres()
    const failure: unknown = await withDeadline(
      isStandby(poolOver([server.url, server.url], 'standby')),
      10_000,
      'it',
    ).catch((error: unknown) => error)
    const hosts = `127.0.0.1:${server.port},127.0.0.1:${server.port}`
    expect(failure).toMatchObject({ message: `TARGET_SESSION_ATTRS: no host of ${hosts} is standby` })
    // Like a failover: it passes, and is reported and awaited like any other outage.
    expect([isOutage(failure), explainPostgres(failure)]).toMatchObject([
      true,
      { passing: true, words: expect.stringContaining('failover') },
    ])
    await server.stop()
    await expect(
      withDeadline(isStandby(poolOver([server.url, server.url], 'read-write')), 10_000, 'it'),
    ).rejects.toMatchObject({
      code: 'ECONNREFUSED',
    })
  })

  it('use the next one if the first accepts connections but never answers', async () => {
    const server = pair.primary
    const mute = await startCuttingProxy(server.url)
    mute.cutAfter({ after: 0, how: 'end' })
    expect(await withDeadline(isStandby(poolOver([mute.url, server.url], 'read-write', 1)), 10_000, 'it')).toBe(false)
  })

  it('behind poolers are asked for their present state; all settings are omitted if one is refused', async () => {
    const server = pair.primary
    const pooler = await startPostgresProxy(server.url)
    pooler.rememberStandby()
    expect(await isStandby(poolOver([pooler.url], 'read-write', 1))).toBe(false)
    const pool = poolOver([await startRefusingPooler(server.url, 4)], 'read-write', 4)
    expect(await Promise.all(Array.from({ length: 8 }, () => isStandby(pool)))).toEqual(
      Array.from({ length: 8 }, () => false),
    )
  })

  it('are changed after the first statement that a now read-only server refuses', async () => {
    const [first, second] = [await withPackagedPostgres(), await withPackagedPostgres()]
    const pool = poolOver([first.url, second.url], 'read-write', 1)
    const portOf = async () => (await pool.client.unsafe('show port'))[0]?.['port']
    expect(await portOf()).toBe(String(first.port))
    const admin = createPool({ url: first.url, max: 1 })
    onTestFinished(() => admin.close())
    await admin.client.unsafe('alter system set default_transaction_read_only = on')
    await admin.client.unsafe('select pg_reload_conf()')
    await eventually(() =>
      pool.client.unsafe('create table refused ()').then(
        () => false,
        (error: unknown) => error instanceof Error && 'code' in error && error.code === '25006',
      ),
    )
    expect(await eventually(portOf)).toBe(String(second.port))
  })

  it('follow a failover to a promoted standby without a new pool', async () => {
    const { primary, standby } = pair
    const pool = poolOver([primary.url, standby.url], 'read-write', 4)
    await pool.client.unsafe('create table written (n int)')
    await eventually(async () => (await isStandby(poolOver([standby.url], 'standby', 1))) === true)
    await primary.stop('immediate')
    await expect(pool.client.unsafe('insert into written values (1)')).rejects.toThrow()
    await promote(standby)
    await eventually(
      async () => (await pool.client.unsafe('insert into written values (2) returning n')).length === 1,
      10_000,
    )
  })
})
