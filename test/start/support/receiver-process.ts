import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import { openLaptop } from '../../laptop/support/laptop.ts'
import { withTestDatabase } from '../../support/database.ts'
import { deliver, failed } from '../../support/webhooks.ts'

export const keyNamed = (name: string, signingSecret: string) => ({
  name,
  api_key: `service_live_${name.repeat(8)}`,
  signing_secret: signingSecret,
})

/** A receiver as production starts it: every setting given, keys in a file, on a database of the test's own. */
export async function startProductionReceiver(env: Record<string, string> = {}) {
  const database = await withTestDatabase()
  const laptop = await openLaptop()
  onTestFinished(laptop.remove)
  const keysFile = path.join(laptop.folder, 'keys.json')
  await fs.writeFile(keysFile, JSON.stringify([keyNamed('first', 'whsec_first_secret')]))
  const settings = {
    NODE_ENV: 'production',
    DATABASE_URL: database.url,
    HOST: '127.0.0.1',
    GENERATION_API_URL: 'https://api.test',
    GENERATION_KEYS_FILE: keysFile,
    WEBHOOK_PUBLIC_URL: 'https://hooks.test/webhooks',
    ...env,
  }
  const program = laptop.start(settings, 'receiver')
  await program.says(/"msg":"started"/)
  const base = `http://127.0.0.1:${laptop.ports.PORT}`
  return {
    program,
    database,
    keysFile,
    folder: laptop.folder,
    base,
    internalBase: `http://127.0.0.1:${laptop.ports.INTERNAL_PORT}`,
    /** The status that a delivery signed with this secret is answered with. */
    deliver: async (secret: string) =>
      (await deliver(`${base}/webhooks`, failed(randomUUID()).body, { secret })).status,
  }
}
