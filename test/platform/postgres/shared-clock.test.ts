import pino from 'pino'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { createSharedClock } from '../../../src/platform/postgres/shared-clock.ts'
import { withTestDatabase } from '../../support/database.ts'

const anHourMs = 3_600_000

async function setUp(aheadMs: number) {
  const database = await withTestDatabase()
  const pool = createPool({ url: database.url, max: 1 })
  onTestFinished(() => pool.close())
  const lines: { level: number; msg: string; ahead_seconds?: number }[] = []
  const logger = pino({ base: null }, { write: (line) => void lines.push(JSON.parse(line)) })
  let ahead = aheadMs
  const clock = createSharedClock({ db: pool.db, logger, hostNow: () => new Date(Date.now() + ahead) })
  return {
    ...clock,
    lines,
    close: pool.close,
    set: (ms: number) => {
      ahead = ms
    },
    /** How far it is from Postgres, which runs on this host. */
    off: () => Math.abs(clock.now().getTime() - Date.now()),
  }
}

describe('createSharedClock', () => {
  it.each([anHourMs, -anHourMs, 30_000, -30_000])(
    'sets a host right that is %i ms ahead, and says so once',
    async (aheadMs) => {
      const clock = await setUp(aheadMs)
      expect(clock.off()).toBeGreaterThan(20_000)
      await clock.begin()
      expect(clock.off()).toBeLessThan(5000)
      await clock.compare()
      expect(clock.lines).toMatchObject([
        { level: 40, ahead_seconds: aheadMs / 1000, msg: expect.stringContaining(aheadMs > 0 ? 'ahead of' : 'behind') },
      ])
    },
  )

  it('leaves a host alone that agrees within a second', async () => {
    const clock = await setUp(0)
    await clock.begin()
    const before = Date.now()
    const now = clock.now().getTime()
    expect(now).toBeGreaterThanOrEqual(before)
    expect(now).toBeLessThanOrEqual(Date.now())
    expect(clock.lines).toEqual([])
  })

  it('does not go along when the clock of the host is set, before it has asked again', async () => {
    const clock = await setUp(anHourMs)
    await clock.begin()
    clock.set(0)
    expect(clock.off()).toBeLessThan(5000)
    clock.set(-anHourMs)
    expect(clock.off()).toBeLessThan(5000)
    clock.set(0)
    await clock.compare()
    expect(clock.lines.map(({ msg }) => msg)).toEqual([
      expect.stringContaining('ahead of'),
      'the clocks of this host and of Postgres agree again',
    ])
  })

  it('goes by the host as long as Postgres has not told its time, and by what it told while it is away', async () => {
    const clock = await setUp(anHourMs)
    await clock.begin()
    await clock.close()
    await expect(clock.compare()).rejects.toThrow()
    expect(clock.off()).toBeLessThan(5000)
    const other = await setUp(anHourMs)
    await other.close()
    await other.begin()
    expect(other.off()).toBeGreaterThan(20_000)
    expect(other.lines.map(({ msg }) => msg)).toEqual([
      'Postgres did not tell its time: it goes by this host until it does',
    ])
  })
})
