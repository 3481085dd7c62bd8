import type { Database } from '../../platform/postgres/postgres.ts'
import type { Environment } from '../domain/schema.ts'
import { insertKey } from './keys.ts'
import { grant } from './ledger.ts'

/** A key that a laptop starts with, known beforehand to whoever uses it. */
export type DemoKey = {
  account: string
  name: string
  environment: Environment
  apiKey: string
  signingSecret: string
  credits: number
}

/** Makes what is missing; started again, nothing changes. A live key's account gets its credits once. */
export async function importDemoKeys(
  deps: { db: Database; secretKey: Buffer },
  demoKeys: readonly DemoKey[],
): Promise<void> {
  for (const { credits, ...key } of demoKeys) {
    await insertKey(deps, key)
    if (key.environment !== 'live' || credits <= 0) continue
    const reference = `demo:${key.account}`
    await grant(deps.db, { accountId: key.account, credits: String(credits), reference })
  }
}
