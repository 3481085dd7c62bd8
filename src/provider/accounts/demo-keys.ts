import type { Database } from '../../platform/postgres/postgres.ts'
import type { Environment } from '../domain/schema.ts'
import { insertKey } from './keys.ts'
import { grant } from './ledger.ts'

/** A key that the first start on a laptop creates and later starts reuse. */
export type DemoKey = {
  account: string
  name: string
  environment: Environment
  apiKey: string
  signingSecret: string
  credits: number
}

/** Creates missing keys. The account of a live key gets its credits once. */
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
