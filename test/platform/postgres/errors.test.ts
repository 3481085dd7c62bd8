import { sql as statement } from 'drizzle-orm'
import postgres from 'postgres'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  databaseCodeOf,
  databaseErrorOf,
  hadToGiveWay,
  isAboutTheData,
  faultOf,
  postgresMessage,
  retryConflicts,
} from '../../../src/platform/postgres/errors.ts'
import { createPool } from '../../../src/platform/postgres/postgres.ts'
import { explainPostgres } from '../../../src/platform/postgres/words.ts'
import { withTestDatabase } from '../../support/database.ts'

async function failureOf(text: string, url?: string) {
  const pool = createPool({ url: url ?? (await withTestDatabase()).url, max: 1 })
  onTestFinished(() => pool.close())
  const plain: unknown = await pool.client.unsafe(text).then(
    () => undefined,
    (error: unknown) => error,
  )
  const wrapped: unknown = await pool.db.execute(statement.raw(text)).then(
    () => undefined,
    (error: unknown) => error,
  )
  return [plain, wrapped]
}

const raising = (state: string) => `do $$ begin raise exception 'as raised here' using errcode = '${state}'; end $$`

describe('databaseErrorOf', () => {
  it("returns Postgres's error, wrapped by drizzle or not, and other errors unchanged", async () => {
    const [plain, wrapped] = await failureOf(raising('23505'))
    expect(wrapped).toMatchObject({ name: 'Error', message: expect.stringMatching(/^Failed query/) })
    expect(
      [plain, databaseErrorOf(plain), databaseErrorOf(wrapped)].map(
        (error) => error instanceof Error && [error.name, error.message],
      ),
    ).toEqual(Array.from({ length: 3 }, () => ['PostgresError', 'as raised here']))
    expect([plain, wrapped].map(databaseCodeOf)).toEqual(['23505', '23505'])
    // Failures caused by it are not tested here.
    const other = new Error('the work was not done', { cause: plain })
    expect([databaseErrorOf(other), databaseCodeOf(other), databaseCodeOf('23505')]).toEqual([
      other,
      undefined,
      undefined,
    ])
  })
})

it('explainPostgres gives the same text for an error that drizzle wrapped', async () => {
  const words = { words: 'Postgres says: as raised here (23505)', passing: false }
  expect((await failureOf(raising('23505'))).map(explainPostgres)).toEqual([words, words])
})

describe('faultOf', () => {
  it.each<[string, string]>([
    ['a value that does not fit', `select 'x'::int`],
    ['a constraint', 'insert into mediadock.requests (request_id) values (null)'],
    ['a limit', `select ${Array.from({ length: 1700 }, () => '1').join(',')}`],
    ['a table that is not there', 'select * from nowhere'],
    ...['P0001', '42501', '0A000', '21000', '09000', '27000', '2F002', '38000', '39000', '55000', '44000', 'ZZ001'].map(
      (state): [string, string] => [state, raising(state)],
    ),
  ])('%s is refused', async (_what, text) => {
    expect((await failureOf(text)).map(faultOf)).toEqual(['row', 'row'])
  })

  it.each<[string, string]>([
    ['a read-only transaction', 'set transaction read only; create table x ()'],
    ['a statement that was canceled', `set statement_timeout = 10; select pg_sleep(5)`],
    ...['08006', '25006', '40001', '40P01', '53100', '53300', '57014', '57P01', '58030', 'XX000', 'F0000'].map(
      (state): [string, string] => [state, raising(state)],
    ),
  ])('%s is the fault of the server', async (_what, text) => {
    expect((await failureOf(text)).map(faultOf)).toEqual(['server', 'server'])
  })

  it('no server, no access, and other errors are the fault of the server', async () => {
    const [away] = await failureOf('select 1', 'postgres://x:y@127.0.0.1:9/z')
    expect(away).toMatchObject({ code: 'ECONNREFUSED' })
    const { url } = await withTestDatabase()
    const [unknown] = await failureOf('select 1', `${url}_gone`)
    expect(unknown).toMatchObject({ code: '3D000' })
    for (const other of [
      away,
      unknown,
      undefined,
      'x',
      new Error('22000'),
      { code: '22000' },
      Object.assign(new Error('broken'), { code: 'EPIPE' }),
      // The queue of notices is full: no row can be written that has one.
      Object.assign(new postgres.PostgresError('too many notifications'), {
        code: '54000',
        severity: 'ERROR',
        routine: 'PreCommit_Notify',
      }),
    ]) {
      expect(faultOf(other)).toBe('server')
    }
  })
})

it('a lock of a row is no refusal', async () => {
  expect((await failureOf(raising('55P03'))).map(faultOf)).toEqual(['locked', 'locked'])
})

it('only a value, a constraint or a limit is about the data', async () => {
  for (const [text, isIt] of [
    [`select 'x'::int`, true],
    [raising('P0001'), false],
    [raising('42501'), false],
  ] as const) {
    expect((await failureOf(text)).map(isAboutTheData)).toEqual([isIt, isIt])
  }
})

it("returns Postgres's own message", async () => {
  for (const error of await failureOf(raising('P0001'))) expect(postgresMessage(error)).toBe('as raised here (P0001)')
  expect(postgresMessage(new Error('plain'))).toBe('plain')
})

it('names the constraint, the table and the function of a trigger that refused', async () => {
  const of = (fields: Partial<postgres.PostgresError>, message = 'no') =>
    postgresMessage(Object.assign(new postgres.PostgresError(message), { message, code: 'P0001', ...fields }))
  const where =
    'SQL statement "insert into shop.lines values (f(1))"\nPL/pgSQL-Funktion shop.take_order() Zeile 3 bei RAISE'
  expect(of({ where })).toBe('no (P0001), function shop.take_order()')
  expect(of({ where: 'SQL statement "select f(1) from x"' })).toBe('no (P0001)')
  const table = { schema_name: 'shop', table_name: 'orders' }
  expect(of(table)).toBe('no (P0001), table shop.orders')
  expect(of({ ...table, constraint_name: 'one_each', where })).toBe(
    'no (P0001), constraint one_each of shop.orders, function shop.take_order()',
  )
  expect(of({ where }, 'x'.repeat(1000)).length).toBeLessThan(400)
})

describe('a statement that lost a deadlock or a serialization conflict', () => {
  it.each(['40001', '40P01'])('is retried at once (%s), a few times only', async (state) => {
    const [refused] = await failureOf(raising(state))
    expect(hadToGiveWay(refused)).toBe(true)
    let tries = 0
    const third = () => ((tries += 1) < 3 ? Promise.reject(refused) : Promise.resolve('done'))
    expect(await retryConflicts(third)).toBe('done')
    tries = 0
    await expect(retryConflicts(() => Promise.reject(((tries += 1), refused)))).rejects.toBe(refused)
    expect(tries).toBe(5)
  })

  it('is not one with another error', async () => {
    const [refused] = await failureOf(raising('P0001'))
    let tries = 0
    await expect(retryConflicts(() => Promise.reject(((tries += 1), refused)))).rejects.toBe(refused)
    expect(tries).toBe(1)
  })
})
