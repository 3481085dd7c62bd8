import assert from 'node:assert/strict'
import { linkOf, type Call, type KeyName, type Request } from './provider.ts'
import type { RequestRow, Snapshot } from './snapshot.ts'
import { callsPerMinute, environments } from './world.ts'

const terminal = new Set(['COMPLETED', 'FAILED', 'CANCELED'])

export type Notice = { request_id: string; status: string; media_complete: boolean }

/** The acknowledged deliveries: the id, and the row that must be stored. */
export type Acknowledged = Map<string, { webhookId: string; sha: string }>

const isOwn = <T extends Snapshot['deliveries'][number]>(one: T): one is T & { key_name: KeyName } =>
  one.source_name === null

/** Checks what must hold after every command. */
export function holdAlways(
  state: Snapshot,
  { requests, acknowledged }: { requests: readonly Request[]; acknowledged: Acknowledged },
): void {
  for (const [id, { webhookId, sha }] of acknowledged) {
    const row = state.deliveries.find((delivery) => delivery.id === id)
    assert.ok(row, `acknowledged ${webhookId} is not stored`)
    assert.deepEqual([row.webhook_id, row.sha], [webhookId, sha], 'what was acknowledged is not what is stored')
  }
  assert.equal(state.deliveries.length, acknowledged.size, 'a delivery is stored that was not acknowledged')
  // The key and environment of a delivery stay as accepted, even if the key changes.
  for (const { key_name: signer, environment } of state.deliveries.filter(isOwn))
    assert.equal(environment, environments[signer], 'a delivery is of another environment than the key that signed it')
  for (const { delivery_id: id } of state.inbox) {
    const reason = state.deliveries.find((delivery) => delivery.id === id)?.parked_reason
    assert.ok(
      reason === null || reason === 'key_mismatch' || reason === 'source_mismatch',
      `the inbox holds what is no delivery, or parked for ${reason}`,
    )
  }

  assert.equal(
    new Set(state.requests.map((row) => row.request_id)).size,
    state.requests.length,
    'a request has two rows',
  )
  for (const row of state.requests) {
    assert.equal(row.source_name, null, 'a request went to another source')
    assert.ok(
      requests.some(({ id }) => id === row.request_id),
      'a row of an unnamed request',
    )
    holdMedia(row, state)
    assert.equal(row.landed_at !== null, terminal.has(row.status), `landed_at does not go with ${row.status}`)
  }
  for (const item of state.media)
    assert.ok(
      state.requests.some((row) => row.request_id === item.request_id),
      'media of no request',
    )
}

/** One row per output, of the same kind, in its place; none where there is no output. */
function holdMedia(row: RequestRow, state: Snapshot): void {
  const media = state.media.filter((item) => item.request_id === row.request_id)
  if (row.status !== 'COMPLETED') return assert.deepEqual(media, [], `a ${row.status} request has media`)
  const count = row.output?.images?.length ?? 1
  const kind = row.output?.images ? 'image' : row.output?.video ? 'video' : 'audio'
  assert.deepEqual(
    media.map((item) => [item.kind, item.position]),
    Array.from({ length: count }, (_, position) => [kind, position]),
    'media are not one row per output',
  )
}

/** True if the landed state is of a sandbox key. */
function wordOf({ signed_sandbox, sandbox }: RequestRow): boolean | null {
  return signed_sandbox ?? sandbox
}

/** True if a key of the other environment overruled a result that had landed. */
function changedEnvironment(old: RequestRow, row: RequestRow): boolean {
  return old.landed_at !== null && wordOf(old) !== wordOf(row)
}

/** States never go back: a terminal one stays, but for the provider's own result, once, and for the word of the right environment. */
export function holdForward(before: Snapshot, after: Snapshot): void {
  for (const old of before.requests) {
    const row = after.requests.find((one) => one.request_id === old.request_id)
    assert.ok(row, 'a request is gone')
    const otherWord = changedEnvironment(old, row)
    const overruled = old.confirmed_at === null && (row.confirmed_at !== null || otherWord)
    if (otherWord && wordOf(row) === true && row.confirmed_at === null) {
      assert.ok(
        row.key_source !== 'landed' && environments[row.key_name ?? 'live'] === 'sandbox',
        'a sandbox key overruled a live one',
      )
    }
    if (old.landed_at !== null) {
      assert.equal(row.landed_at, old.landed_at, 'a request landed twice')
      if (!overruled) {
        const result = ({ status, output, media_complete, cost }: RequestRow) => ({
          status,
          output,
          media_complete,
          cost,
        })
        assert.deepEqual(result(row), result(old), 'a terminal state changed without the word of the provider')
      }
    }
    assert.ok(!(old.status === 'IN_PROGRESS' && row.status === 'IN_QUEUE'), 'a state went back to IN_QUEUE')
    assert.ok(old.confirmed_at === null || row.confirmed_at === old.confirmed_at, 'a result was confirmed twice')
  }
  for (const old of before.deliveries) {
    const row = after.deliveries.find(({ id }) => id === old.id)
    const request = after.requests.find((one) => one.request_id === old.request_id)
    // Only the provider's word ends a contradiction, and only for who had the same.
    const borneOut = request?.confirmed_at !== null && endBy(old.status) === request?.status
    for (const flag of old.flags)
      assert.ok(row?.flags.includes(flag) || (flag === 'contradiction' && borneOut), `the flag ${flag} is gone`)
  }
}

/** Readers get a notice of each change once, in order, and of nothing else. */
export function holdNotices(before: Snapshot, after: Snapshot, notices: readonly Notice[]): void {
  for (const row of after.requests) {
    const old = before.requests.find((one) => one.request_id === row.request_id)
    const key = ({ status, media_complete }: { status: string; media_complete: boolean }) =>
      `${status} ${media_complete}`
    const steps = notices.filter((one) => one.request_id === row.request_id).map(key)
    let known = old && old.landed_at !== null ? key(old) : 'not terminal'
    // The same state in the other environment is another result: the row's `sandbox` changes, and feeds filter by it.
    // The flag shows a change within one command. A body that a live key signed again has no flag.
    const otherEnvironment =
      (old && changedEnvironment(old, row)) ||
      after.deliveries.some(
        (delivery) => delivery.request_id === row.request_id && delivery.flags.includes('key_mismatch'),
      )
    for (const step of steps) {
      assert.ok(step !== known || otherEnvironment, 'readers got a notice of what they knew')
      known = step
    }
    assert.equal(known, row.landed_at === null ? 'not terminal' : key(row), 'readers got no notice of how it ended')
  }
}

/** Never more calls with one key in any 60 s of true time than the limit, and none while the provider demanded a pause. */
export function holdQuota(
  calls: readonly Call[],
  pauses: readonly { key: string; from: number; until: number }[],
): void {
  for (const first of calls) {
    const within = calls.filter(({ key, at }) => key === first.key && at >= first.at && at < first.at + 60_000)
    assert.ok(within.length <= callsPerMinute, `${within.length} calls with ${first.key} in 60 s`)
  }
  for (const { key, at } of calls) {
    assert.ok(
      !pauses.some((pause) => pause.key === key && at > pause.from && at < pause.until),
      `${key} called while it had to rest`,
    )
  }
}

/** The end of a sequence, the provider healthy again and time enough: nothing open, and what was polled is as the provider has it. */
export function holdEnd(whole: Snapshot, requests: readonly Request[]): void {
  assert.deepEqual(whole.inbox, [], 'deliveries are still pending')
  for (const { source_name, parked_reason } of whole.deliveries)
    assert.equal(parked_reason === 'source_mismatch', source_name !== null, 'parked for its source, or not parked')
  const state = { ...whole, deliveries: whole.deliveries.filter(isOwn) }
  for (const row of state.requests) {
    const request = requests.find(({ id }) => id === row.request_id)
    assert.ok(request)
    assert.ok(terminal.has(row.status), `${row.status} with every chance to end`)
    const processable = state.deliveries.filter(
      (delivery) => delivery.request_id === row.request_id && delivery.parked_reason === null,
    )
    const all = state.deliveries.filter((delivery) => delivery.request_id === row.request_id)
    const contradicted = new Set(processable.map((delivery) => delivery.status)).size > 1
    const doubted = wordOf(row) === true && (row.key_source === 'landed' || row.key_name === null)
    const mismatched = all.some((delivery) => delivery.parked_reason === 'key_mismatch')
    if (row.confirmed_at !== null) holdTruth(row, request, state)
    // Only an ERROR that nothing contradicts is taken at its word, and not that of a sandbox key alone.
    else
      assert.ok(
        row.status === 'FAILED' && !contradicted && !doubted && !mismatched,
        `${row.status} stands and nobody polled: ${JSON.stringify({ row, deliveries: state.deliveries.filter((d) => d.request_id === row.request_id), request })}`,
      )

    const sandbox = row.sandbox ?? row.signed_sandbox
    for (const { status, key_name: signer, parked_reason: reason, flags } of all) {
      const foreign = status !== null && sandbox !== (environments[signer] === 'sandbox')
      assert.ok(reason !== 'key_mismatch' || foreign, `signed by ${signer}, sandbox ${sandbox}, parked for ${reason}`)
      assert.ok(!foreign || flags.includes('key_mismatch'), `signed by ${signer}, sandbox ${sandbox}, flagged ${flags}`)
    }
    for (const delivery of processable) {
      const flagged = delivery.flags.includes('contradiction')
      const ends = new Set(all.flatMap(({ status }) => status ?? []))
      // Until the provider decides, either may be flagged. Then it is the delivery with the other end.
      assert.ok(
        endBy(delivery.status) === row.status ? !flagged || (ends.size > 1 && row.confirmed_at === null) : flagged,
        `${delivery.status} against ${row.status}: ${delivery.flags}`,
      )
    }
  }
  for (const delivery of state.deliveries) {
    const sameId = state.deliveries.filter(
      (other) => other.webhook_id === delivery.webhook_id && other.id !== delivery.id,
    )
    if (delivery.flags.includes('id_reused')) assert.ok(sameId.length > 0, 'flagged as reused and is not')
    if (delivery.parked_reason === 'key_mismatch')
      assert.ok(delivery.flags.includes('key_mismatch'), 'parked for a key mismatch and not flagged')
  }
}

function endBy(status: string | null): string | undefined {
  return { OK: 'COMPLETED', ERROR: 'FAILED' }[status ?? '']
}

function holdTruth(row: RequestRow, request: Request, state: Snapshot): void {
  const { id, kind, truth } = request
  const expected = { running: 'never', completed: 'COMPLETED', failed: 'FAILED', canceled: 'CANCELED' }[truth.is]
  assert.equal(row.status, expected, 'the provider has another state')
  const outputs = truth.is !== 'completed' ? 0 : kind === 'image' ? truth.outputs : 1
  assert.deepEqual(
    state.media.filter((item) => item.request_id === id).map((item) => item.url),
    Array.from({ length: outputs }, (_, at) => linkOf(id, kind, at)),
    'the provider has other media',
  )
  assert.equal(Number(row.cost), truth.is === 'completed' ? 7 : 0, 'the provider took another price')
  assert.equal(row.media_complete, true)
  assert.equal(row.sandbox, environments[request.owner] === 'sandbox', 'confirmed as of the other environment')
  assert.deepEqual([row.next_poll_at, row.doubt_poll_at], [null, null], 'it is known and still polled')
}
