import { atMost } from './at-most.ts'
import { StringChunk, sql, type Column, type SQL } from './drizzle.ts'
import type { Database } from './postgres.ts'
import { later } from './time.ts'

/**
 * How rows are claimed, in every table that is a queue. `now` is the shared time (time.ts).
 *
 * - `due_at`: the time from which the row may be claimed. A claim moves it to the end of its lease, so the row of a dead
 *   claimant becomes due again. A table whose rows have a schedule in other columns uses it for the lease alone, so it
 *   says only that no claimant holds the row: `leased_until` of subscriptions, `poll_leased_until` of requests.
 * - `claims`: increases with every claim, and with every end of a claim that keeps the row in its queue. It fences: a
 *   claimant renews or ends its claim only while the number is unchanged. Its writes to other rows are fenced only in
 *   statements that check the number too.
 * - `failures`, `trouble`: the number of failures in a row, and the reason of the last one.
 *
 * A table's module writes the statement that selects due rows, with the pieces from here.
 */
export type LeaseColumns<Key extends string> = {
  /** The columns of the primary key, by their names in the code. */
  key: Readonly<Record<Key, Column>>
  due_at: Column
  claims: Column
  failures?: Column
  trouble?: Column
}

/** A row that this process has claimed. */
export type Claim<Key extends string = never> = Readonly<Record<Key, string | number>> & { readonly claims: number }

type Renewal = { now: SQL; seconds: number | SQL; only?: SQL }

function typeOf(column: Column): string {
  return column.getSQLType().replace('bigserial', 'bigint')
}

const castOf = (column: Column) => new StringChunk(typeOf(column))

/** Returns these members of the claims, with the number of each claim as `n`. */
function asJson(claims: readonly object[], names: readonly string[]): string {
  const sentOf = (claim: object) => Object.entries(claim).filter(([name]) => names.includes(name))
  return JSON.stringify(claims.map((claim, n) => ({ ...Object.fromEntries(sentOf(claim)), n })))
}

/** Creates the lease of a table. Statements must use this alias for the table. */
export function leaseOf<Key extends string>(alias: string, columns: LeaseColumns<Key>) {
  const { key, due_at: dueAt, claims, failures, trouble } = columns
  const of = ({ name }: Column) => new StringChunk(`${alias}.${name}`)
  const to = ({ name }: Column) => new StringChunk(name)
  const keys: [string, Column][] = Object.entries(key)
  const table = sql`${dueAt.table} ${new StringChunk(alias)}`
  const count = sql`${to(claims)} = ${of(claims)} + 1`
  const fail = failures === undefined ? sql`` : sql`, ${to(failures)} = ${of(failures)} + 1`
  const note = (why: string) => (trouble === undefined ? sql`` : sql`, ${to(trouble)} = ${why}`)

  const isHeld = (claim: Claim<Key>) => {
    const given = new Map(Object.entries<string | number>(claim))
    const isRow = keys.map(([name, column]) => sql`${of(column)} = ${given.get(name)}::${castOf(column)}`)
    return sql`${sql.join(isRow, sql` and `)} and ${of(claims)} = ${claim.claims}::int`
  }

  return {
    /** Condition: the row may be claimed. */
    isDue: (now: SQL) => sql`${of(dueAt)} <= ${now}`,
    /** Condition: the claim is still the last one. */
    isHeld,
    /** For SET: claims the row for this many seconds. */
    claim: (now: SQL, seconds: number | SQL) => sql`${to(dueAt)} = ${later(now, seconds)}, ${count}`,
    /** For SET: ends the claim. The row is due at once. */
    giveBack: (now: SQL) => sql`${to(dueAt)} = ${now}, ${count}`,
    /** For SET: ends the claim with a failure. The row is due after a pause. */
    putOff: (now: SQL, { pauseSeconds, trouble: why }: { pauseSeconds: number; trouble: string }) =>
      sql`${to(dueAt)} = ${later(now, pauseSeconds)}, ${count}${fail}${note(why)}`,
    /** For SET: ends the claim of work that is done or given up. The row is not due again unless its time is set. */
    end: sql`${to(dueAt)} = 'infinity', ${count}`,
    /**
     * Extends the claims for which `only` holds, and returns them. Work on the others must stop unless it is fenced. A
     * row that another transaction has locked is returned too, but is extended only by a later renewal, since the others
     * must not wait for it.
     */
    renew: async <Held extends Claim<Key>>(db: Database, held: readonly Held[], renewal: Renewal): Promise<Held[]> => {
      const { now, seconds, only = sql`true` } = renewal
      if (held.length === 0) return []
      const shape = keys.map(([name, column]) => `"${name}" ${typeOf(column)}, `).join('')
      // An array of one makes the planner look up each row by its key, even with the statistics of an empty queue.
      const isRow = keys.map(([name, column]) => sql`${of(column)} = any(array[held.${new StringChunk(`"${name}"`)}])`)
      const isStillHeld = sql`${sql.join(isRow, sql` and `)} and ${of(claims)} = held.claims and ${only}`
      const rows = await db.execute<{ n: number }>(sql`
        with given as materialized (
          select * from jsonb_to_recordset(${asJson(held, [...Object.keys(key), 'claims'])}::jsonb)
            as h (${new StringChunk(shape)}claims integer, n integer) limit ${atMost(held.length)}
        ),
        renewed as (
          update ${table} set ${to(dueAt)} = ${later(now, seconds)} from (select held.* from given as held,
            lateral (select 1 from ${table} where ${isStillHeld} limit 1 for no key update skip locked) as free) as held
          where ${isStillHeld})
        select held.n from given as held, lateral (select 1 from ${table} where ${isStillHeld} limit 1) as mine`)
      const kept = new Set(rows.map(({ n }) => n))
      return held.filter((_claim, n) => kept.has(n))
    },
    /** Writes columns of a claimed row. Returns false without writing if another process has claimed the row since. */
    write: async (db: Database, claim: Claim<Key>, set: SQL): Promise<boolean> =>
      (await db.execute(sql`update ${table} set ${set} where ${isHeld(claim)} returning 1`)).length > 0,
  }
}

/** The numbers that the `claims` of one row may use. A claim and its end every 10 s use them up in 5.7 hours. */
const claimsOfOneRow = 4096

/**
 * The first `claims` of a row that replaces an earlier row with the same key. Each second has another multiple of
 * `claimsOfOneRow`; the multiples repeat after three days. So a late claimant of the earlier row cannot end this
 * one.
 */
export const claimsAnew = sql.raw(`((extract(epoch from now())::bigint % 262143 + 1) * ${claimsOfOneRow})::integer`)

/** Returns how many claims, and ends of claims, the row itself had. */
export function claimsOfRow(claims: number): number {
  return claims % claimsOfOneRow
}
