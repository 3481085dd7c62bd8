import { randomBytes, randomUUID } from 'node:crypto'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { commands } from '../../src/commands/index.ts'
import { startProcess } from '../platform/support/processes.ts'
import { childEnv } from '../support/child-env.ts'
import { withTestDatabase } from '../support/database.ts'
import { json, startProviderStand } from '../support/provider-stand.ts'
import { liveKey } from '../support/receiver.ts'

/** Commands with arguments that reach their end. The stand-in for the provider answers all of them. */
const lines: readonly string[][] = [
  ['arrivals'],
  ['config', 'check'],
  ['deliveries'],
  ['keys'],
  ['media', 'remove', randomUUID()],
  ['migrate'],
  ['provider', 'keys', 'list'],
  ['provider', 'ledger', 'check'],
  ['reconcile'],
  ['replay', '--state', 'parked'],
  ['requests'],
  ['status'],
  ['trigger', 'ok'],
  ['types'],
  ['verify'],
]

// `start` and `tail` run until a signal ends them; their own tests show that they exit.
it('each command leaves nothing open that keeps the process running', async () => {
  expect(lines.map(([name]) => name)).toEqual(
    expect.arrayContaining(Object.keys(commands).filter((name) => name !== 'start' && name !== 'tail')),
  )
  const { url } = await withTestDatabase()
  const stand = await startProviderStand()
  onTestFinished(stand.close)
  stand.answer((_id, _req, res) => json(res, 200, { data: [] }))
  const script = path.resolve(import.meta.dirname, '../commands/one-after-another.ts')
  const env = {
    ...childEnv,
    DATABASE_URL: url,
    GENERATION_API_URL: stand.url,
    GENERATION_KEYS: JSON.stringify([liveKey]),
    PROVIDER_SECRET_KEY: randomBytes(32).toString('base64'),
  }
  const here = lines.map((args) => (args[0] === 'trigger' ? [...args, '--url', stand.url] : args))
  const program = startProcess(process.execPath, [script, JSON.stringify(here)], { env })
  const { code, signal } = await program.exit
  expect({ code, signal, output: program.output() }).toMatchObject({ code: 0, signal: null })
})
