import type { Logger } from '../../platform/logger.ts'
import { faultOf } from '../../platform/postgres/errors.ts'
import { shortLockWaitMs } from '../../platform/postgres/lock-wait.ts'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { SharedTime } from '../../platform/postgres/time.ts'
import { environmentOfKey, type Keys } from '../domain/keys.ts'
import type { RequestIds } from '../domain/request-id.ts'
import * as intents from './generations.ts'

export type Joining = RequestIds & { idempotencyKey: string; sourceName: string | null }

export type JoiningDeps = { db: Database; keys: () => Keys; time: SharedTime; logger: Logger }

/**
 * Ends the submit that a webhook's URL names, as submitted with the job of the webhook. This finds a submit whose
 * answer was lost, but not at Luma, whose unsigned webhooks are not stored, nor at Gemini, whose submits name no URL. A
 * submit of another source, and one that was submitted or refused, stay as they are. Runs before the webhook lands: if
 * the process dies in between, the next claim of the webhook joins it again. Throws if another transaction
 * locks a row for longer than a landing waits.
 */
export async function joinSubmit(
  { db, keys, time, logger }: JoiningDeps,
  { idempotencyKey, sourceName, ...ids }: Joining,
): Promise<void> {
  const generation = await intents.find(db, idempotencyKey)
  if (generation?.source_name !== sourceName || !['pending', 'expired'].includes(generation.state)) return
  const environment = environmentOfKey(keys(), generation.key_name)
  try {
    await intents.submitted(db, generation, {
      ...ids,
      cost: undefined,
      environment,
      now: time(),
      lockWaitMs: shortLockWaitMs,
    })
    const joined = { idempotency_key: idempotencyKey, request_id: ids.requestId }
    logger.info(joined, 'a webhook ended the submit that its URL names')
  } catch (error) {
    // If Postgres refuses it, the webhook lands without it.
    if (faultOf(error) !== 'row') throw error
    logger.error(
      { err: error, idempotency_key: idempotencyKey },
      'a webhook could not end the submit that its URL names: the webhook lands without it',
    )
  }
}
