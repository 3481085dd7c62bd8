import { Counter } from 'prom-client'
import { expect, it } from 'vitest'
import { createShares } from '../../src/platform/fair-share.ts'
import { createWriteBehind } from '../../src/platform/write-behind.ts'
import { withTestDatabase } from '../support/database.ts'

type Row = { n: number; folded: number }

/** Writes that end when the test lets them. */
function heldWrites() {
  const dropped = new Counter({ name: 'unread', help: 'unread', registers: [] })
  const writes: { rows: string; end: () => void; fail: () => void }[] = []
  const write = (batch: readonly Row[]) => {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    writes.push({ rows: JSON.stringify(batch.map(({ n }) => n)), end: resolve, fail: () => reject(new Error('away')) })
    return promise
  }
  const rows = createWriteBehind<Row>({
    write,
    rowsPerWrite: 2,
    room: createShares({ rows: 4, bytes: Infinity }, 1),
    dropped,
    wake: () => {},
  })
  const add = (...ns: number[]) => ns.forEach((n) => rows.add({ n, folded: 0 }))
  const droppedRows = async () => (await dropped.get()).values[0]?.value
  return { rows, add, writes, droppedRows }
}

it('keeps unwritten rows in order, and counts rows beyond the bound', async () => {
  const { rows, add, writes, droppedRows } = heldWrites()
  add(1, 2, 3, 4, 5)
  expect([rows.waiting(), await droppedRows()]).toEqual([4, 1])
  const failed = rows.writeSome()
  writes[0]?.fail()
  await expect(failed).rejects.toThrow('away')
  const written = rows.writeSome()
  writes[1]?.end()
  expect(await written).toEqual({ written: { rows: 2, bytes: 0 }, more: true })
  add(6, 7)
  expect(writes.map((each) => each.rows)).toEqual(['[1,2]', '[1,2]'])
  expect([rows.waiting(), await droppedRows()]).toEqual([4, 1])
})

it('continues at once with rows beyond the batch; new rows wake it', async () => {
  const { rows, add, writes } = heldWrites()
  add(1, 2, 3)
  const first = rows.writeSome()
  writes[0]?.end()
  expect(await first).toEqual({ written: { rows: 2, bytes: 0 }, more: true })
  const second = rows.writeSome()
  add(4)
  writes[1]?.end()
  expect(await second).toEqual({ written: { rows: 1, bytes: 0 }, more: false })
  expect(rows.waiting()).toBe(1)
})

it('loses nothing if a write finishes after its deadline', async () => {
  const { rows, add, writes } = heldWrites()
  add(1, 2, 3)
  const both = [rows.writeSome(), rows.writeSome()]
  writes.forEach(({ end }) => end())
  await Promise.all(both)
  expect(rows.waiting()).toBe(1)
})

it('bounds the bytes of a write, and writes a larger row alone', async () => {
  const dropped = new Counter({ name: 'unread', help: 'unread', registers: [] })
  const writes: number[][] = []
  const rows = createWriteBehind<number>({
    write: async (batch) => void writes.push([...batch]),
    rowsPerWrite: 10,
    bytesPerWrite: 10,
    costOf: (bytes) => ({ owner: '', bytes }),
    room: createShares({ rows: 10, bytes: Infinity }, 1),
    dropped,
    wake: () => {},
  })
  for (const bytes of [4, 5, 3, 40, 1]) rows.add(bytes)
  while ((await rows.writeSome()).more);
  expect(writes).toEqual([[4, 5], [3], [40], [1]])
})

it('drops the row that Postgres refuses twice, counts it, and writes the others', async () => {
  const { sql } = await withTestDatabase()
  await sql`create table public.kept (n int check (n <> 3))`
  const dropped = new Counter({ name: 'unread', help: 'unread', registers: [] })
  const write = async (batch: readonly number[]) =>
    void (await sql`insert into public.kept select unnest(${[...batch]}::int[])`)
  const rows = createWriteBehind<number>({
    write,
    rowsPerWrite: 10,
    room: createShares({ rows: 10, bytes: Infinity }, 1),
    dropped,
    wake: () => {},
  })
  for (const n of [1, 2, 3, 4, 5]) rows.add(n)
  await expect(rows.writeSome()).rejects.toMatchObject({ code: '23514' })
  expect(await rows.writeSome()).toEqual({ written: { rows: 5, bytes: 0 }, more: false })
  expect((await sql`select n from public.kept order by n`).map(({ n }) => n)).toEqual([1, 2, 4, 5])
  expect([rows.waiting(), (await dropped.get()).values[0]?.value]).toEqual([0, 1])
})

it('does not write rows again if Postgres fails between the halves of a refused batch', async () => {
  const { sql } = await withTestDatabase()
  await sql`create table public.kept (n int check (n <> 3))`
  let isAway = true
  const write = async (batch: readonly number[]) => {
    if (isAway && batch[0] === 4) throw new Error('away')
    await sql`insert into public.kept select unnest(${[...batch]}::int[])`
  }
  const rows = createWriteBehind<number>({
    write,
    rowsPerWrite: 10,
    room: createShares({ rows: 10, bytes: Infinity }, 1),
    dropped: new Counter({ name: 'unread', help: 'unread', registers: [] }),
    wake: () => {},
  })
  for (const n of [1, 2, 3, 4, 5]) rows.add(n)
  await expect(rows.writeSome()).rejects.toMatchObject({ code: '23514' })
  await expect(rows.writeSome()).rejects.toThrow('away')
  expect(rows.waiting()).toBe(2)
  isAway = false
  expect(await rows.writeSome()).toEqual({ written: { rows: 2, bytes: 0 }, more: false })
  expect((await sql`select n from public.kept order by n`).map(({ n }) => n)).toEqual([1, 2, 4, 5])
})
