import { eq } from '../../platform/postgres/drizzle.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import { hashInLink } from '../domain/archived-file.ts'
import { parseBody } from '../domain/delivery.ts'
import { sourceOf, type Keys } from '../domain/keys.ts'
import type { InlineFile } from '../domain/report.ts'
import * as schema from '../domain/schema.ts'
import type { Fetcher } from '../fetching/fetcher.ts'
import type { Copy } from './copies.ts'

export type InlineDeps = { db: Database; keys: () => Keys; fetchResult: Fetcher }

export type Unfit = { kind: 'gone' | 'refused' | 'unreachable'; detail: string }
/** The media itself is not at fault, so this counts as no try. */
export type WaitingCopy = { kind: 'waits'; detail: string; pauseSeconds?: number }

type FoundInline = { kind: 'found'; uri: string } | Unfit | WaitingCopy

/** Finds the bytes of a media that came as base64: in its delivery, or by asking the source again. */
export async function findInline(deps: InlineDeps, copy: Copy, signal: AbortSignal): Promise<FoundInline | undefined> {
  const sha256 = hashInLink(copy.url)
  if (sha256 === undefined) return undefined
  const among = (files: readonly InlineFile[] = []) => files.find((file) => file.sha256 === sha256)?.uri
  for await (const files of inDeliveries(deps, copy)) {
    const uri = among(files)
    if (uri !== undefined) return { kind: 'found', uri }
  }
  const answer = await askAgain(deps, copy, signal)
  if (answer.kind === 'result') {
    const uri = among(answer.report.files)
    return uri === undefined ? { kind: 'gone', detail: 'the source now sends other content' } : { kind: 'found', uri }
  }
  const why = answer.kind === 'no_call' ? answer.reason : answer.kind
  const detail = `the content was requested from the source again: ${why}`
  if (answer.kind === 'not_found') return { kind: 'gone', detail }
  const isSpent = answer.kind === 'rate_limited' || answer.kind === 'no_call'
  return { kind: isSpent ? 'waits' : 'unreachable', detail }
}

/** Reads the bodies one by one, since each may be large; at most 16, so that a flood delays other copies little. */
async function* inDeliveries({ db, keys }: InlineDeps, { request_id: requestId, source_name: sourceName }: Copy) {
  const { id, request_id, received_at, body } = schema.deliveries
  const brought = await db
    .select({ id })
    .from(schema.deliveries)
    .where(eq(request_id, requestId))
    .orderBy(received_at)
    .limit(16)
  for (const one of brought) {
    const [row] = await db.select({ body }).from(schema.deliveries).where(eq(id, one.id))
    const parsed = row && parseBody(sourceOf(keys(), sourceName), row.body)
    if (parsed?.kind === 'report') yield parsed.report.files
  }
}

async function askAgain({ db, fetchResult }: InlineDeps, copy: Copy, signal: AbortSignal) {
  const { request_id, external_id, model } = schema.requests
  const [row] = await db.select({ external_id, model }).from(schema.requests).where(eq(request_id, copy.request_id))
  const { answer } = await fetchResult({
    requestId: copy.request_id,
    jobId: row?.external_id ?? copy.request_id,
    sourceName: copy.source_name,
    model: row?.model ?? undefined,
    keyName: copy.key_name ?? undefined,
    purpose: 'completing',
    signal,
  })
  return answer
}
