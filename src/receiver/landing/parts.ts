import { columnsOfPart } from '../../platform/postgres/columns.ts'
import { StringChunk, type Column } from '../../platform/postgres/drizzle.ts'
import type { ColumnName } from '../../platform/postgres/rows.ts'
import * as schema from '../domain/schema.ts'

/*
 * The parts of the two statements that land results (two-statements.ts), and the columns that each hands on. Each part
 * reads those above it; all see the tables as they were before the statement:
 *
 *   item      one row per landing: what the webhook or the result carries, who signed it, and the claim of its delivery
 *   r         the row of the request as it was, with the environments of its result, of the request and of its key
 *   verdict   the row to write, under the names of `requests`, and the ruling: the outcome that the rules demand
 *   written   the rows of requests that were written, as they are now
 *   ended     the outcome (LandingOutcome), which every later part reads instead of the ruling
 *   settled   the deliveries whose claim still held and ended
 *   flag      the flags that deliveries get or lose, and which are parked (flag-and-park.ts)
 *
 * The other parts write: media_written, media_removed, version_left, due_again, noted, discarded, flagged, changed,
 * notified. The preview of a replay also reads the first two.
 *
 * A claim fences only the end of its delivery (`settled`). A late claimant may still write a request: that row is
 * protected by its version (xmin, in `written`) and by the verdict.
 *
 * A landing that judged a row as another landing left it is `raced`, and runs again. So each landing leaves a new
 * version of a row that is not confirmed, also where it only flags or parks its delivery. A statement that waited for
 * it would otherwise not see those flags, since its snapshot is older.
 *
 * A row is often selected by an array of one (`= any(array[x])`). This forces one index look-up per row, although the
 * statistics are usually those of an empty inbox. An array of all rows beside a join would be sorted for each row.
 */

/** Columns that have the names of columns of `requests`. */
const ofRequests = <Name extends ColumnName<typeof schema.requests>>(...names: Name[]): Name[] => names

const identity = ofRequests('request_id', 'source_name', 'external_id')
const end = ofRequests('status', 'model', 'output', 'media_complete', 'error_code', 'error_message')
const times = ofRequests('created_at', 'completed_at')
/** The delivery that carried the landing, and its claim. `first_id` and `last_id` bound the ids of its webhook id. */
const delivery = ['delivery_id', 'claims', 'first_id', 'last_id', 'flags'] as const

const fromRequests = [...identity, ...end, ...times, ...ofRequests('cost', 'source', 'key_name')]
/** `environment`: that of the key that signed or fetched. `source` and `fetched`: see wayOf() and Landing. */
export const item = columnsOfPart('item', [...fromRequests, ...delivery, 'environment', 'fetched', 'media'])
export const itemTypes = new StringChunk(`${typesOf(schema.requests, fromRequests)},
        delivery_id uuid, claims integer, first_id uuid, last_id uuid, flags jsonb,
        environment text, fetched boolean, media jsonb`)

/** A medium that a landing carries, unpacked. */
export const mediaNames = ['kind', 'position', 'url', 'original_url', 'width', 'height', 'duration_seconds'] as const
export const mediaTypes = new StringChunk(typesOf(schema.media, mediaNames))
export const o = columnsOfPart('o', mediaNames)

/** The columns of `requests` that `r` reads. */
export const read = [
  ...ofRequests('request_id', 'source_name', 'status', 'landed_at', 'confirmed_at', 'next_poll_at'),
  ...ofRequests('cost', 'source', 'key_name', 'key_source', 'sandbox'),
]

/** Derived from them: `version` changes with each write of the row; the environments are explained in verdict.ts. */
const derivedNames = ['version', 'key_environment', 'result_environment', 'request_environment'] as const
export const derived = columnsOfPart('r', derivedNames)
export const row = columnsOfPart('r', [...read, ...derivedNames])

/** The columns of the row to write, as the landing carries them or as the rules decide. */
export const carried = [...identity, ...end, ...times]
const ruled = ofRequests('cost', 'source', 'key_name', 'key_source', 'sandbox', 'confirmed_at', 'next_poll_at')
export const toWrite = [...carried, ...ruled]

/** Also handed on from `item`. */
export const besides = [...delivery, 'environment', 'fetched', 'media'] as const

/** `old_…` and `version` are of `r`. `changes_environment`: the landing moves the request to another environment. */
const old = ['version', 'old_status', 'old_landed_at', 'old_confirmed_at'] as const
export const decided = columnsOfPart('verdict', [...ruled, ...old, 'changes_environment', 'ruling'])
export const verdict = { ...columnsOfPart('verdict', [...carried, ...besides]), ...decided }

/** The row as readers see it in the view `results`, but for the output that the view makes from `media`. */
export const writtenAsStored = [
  ...end,
  ...ofRequests('request_id', 'cost', 'completed_at', 'landed_at', 'source', 'key_name', 'sandbox'),
]
export const written = columnsOfPart('written', [...writtenAsStored, 'created_at'])

/** What the end of a delivery needs, handed on from `verdict`, and what its flags need besides. */
export const forEnds = ['request_id', 'delivery_id', 'claims', 'old_landed_at'] as const
export const forFlags = ['source_name', 'environment', 'first_id', 'last_id', 'flags', 'changes_environment'] as const

/**
 * The short statement has only `outcome` and the columns for ends. `final_status`: the status that stands now.
 * `is_final`: the provider has confirmed it. `concerns_all`: the landing concerns all deliveries of the request, not
 * only its own.
 */
export const standing = columnsOfPart('ended', ['outcome', 'final_status', 'is_final', 'concerns_all'])
export const ended = { ...columnsOfPart('ended', [...forEnds, ...forFlags]), ...standing }

/** `failures` and `replay_id` are of the row that left the inbox. */
const left = ['failures', 'replay_id'] as const
export const settled = columnsOfPart('settled', ['delivery_id', ...left, 'claims', 'outcome', 'old_landed_at'])

/** The names of columns with their types, as jsonb_to_recordset() wants them. */
function typesOf<Name extends string>(table: Record<Name, Column>, names: readonly Name[]): string {
  return names.map((name) => `${name} ${table[name].getSQLType()}`).join(', ')
}
