import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import { createLogger } from '../../../src/platform/logger.ts'
import type { Resolve } from '../../../src/platform/outward/resolver.ts'
import { postgresTime } from '../../../src/platform/postgres/time.ts'
import { builtInCatalog } from '../../../src/provider/catalog/catalog-file.ts'
import { engineOf } from '../../../src/provider/catalog/catalog-model.ts'
import { createEngineHost } from '../../../src/provider/engines/engine-host.ts'
import { createKey, grantCredits, openProvider } from '../../../src/provider/operating/commands.ts'
import { runJob } from '../../../src/provider/queue/job.ts'
import { claimRequests } from '../../../src/provider/queue/requests.ts'
import type { ReferenceRules } from '../../../src/provider/references/reference-links.ts'
import { createReferences } from '../../../src/provider/references/references.ts'
import { writeSubmission } from '../../../src/provider/submit/submit-statement.ts'
import { createTestDatabase } from '../../support/database.ts'

type Options = Pick<ReferenceRules, 'mediaDir' | 'mediaUrl' | 'baseUrl'> & {
  referenceAllow: string[]
  resolve: Resolve
}

/**
 * Runs requests that were accepted, one at a time, on real engines and a real
 * database; what names resolve to is the test's.
 */
export async function startReferenceJobs(rules: Options) {
  const database = await createTestDatabase()
  const { deps, close } = openProvider({ databaseUrl: database.url, secretKey: Buffer.alloc(32) })
  const logger = createLogger('silent')
  const engines = createEngineHost({ logger })
  const environment = 'live'
  const keyId = (await createKey(deps, { account: 'a', name: 'k', environment })).id
  await grantCredits(deps, { account: 'a', credits: 1000 })

  const balance = async () => Number((await database.sql`select available from provider.accounts`)[0]?.['available'])

  const run = async (
    slug: string,
    input: Record<string, string | number | boolean | string[]>,
    deadlineMs = 10_000,
  ) => {
    const references = createReferences({ ...rules, deadlineMs })
    const id = randomUUID()
    const before = await balance()
    const model = builtInCatalog().get(slug)
    if (model === undefined) throw new Error(`no model ${slug}`)
    const what = { model: slug, input, engine: engineOf(model), cost: '4' }
    const common = { requestId: id, accountId: 'a', keyId, environment, ...what } as const
    await writeSubmission(
      deps.db,
      { ...common, webhookUrl: undefined, faults: null, idempotency: undefined, completed: undefined },
      postgresTime(),
    )
    const [claimed] = await claimRequests(deps.db, {
      environment,
      limit: 1,
      leaseSeconds: 60,
      now: postgresTime(),
    })
    if (claimed?.id !== id) throw new Error('another request was claimed')
    const job = {
      db: deps.db,
      engines,
      references,
      logger,
      leaseSeconds: 60,
      random: () => 0.5,
      time: postgresTime,
    }
    const { mediaDir, mediaUrl } = rules
    await runJob({ ...job, mediaDir, mediaUrl }, claimed, new AbortController().signal)
    await references.close()
    const [row] = await database.sql`select status, attempts, error_message from provider.requests where id = ${id}`
    return {
      status: String(row?.['status']),
      attempts: Number(row?.['attempts']),
      message: String(row?.['error_message']),
      spent: before - (await balance()),
    }
  }
  return {
    run,
    engines,
    kept: () => fs.readdir(path.join(rules.mediaDir, '.references')).catch(() => []),
    stop: async () => {
      engines.close()
      await close()
      await database.drop()
    },
  }
}
