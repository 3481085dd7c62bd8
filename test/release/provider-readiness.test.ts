import { randomBytes } from 'node:crypto'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { openLaptop } from '../laptop/support/laptop.ts'
import { preferredServer, withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'

it("the provider's GET /readyz is 503 at once after SIGTERM while the listener still accepts calls, then the process exits with 0", async () => {
  const database = await withTestDatabase(preferredServer)
  const laptop = await openLaptop()
  onTestFinished(laptop.remove)
  const env = {
    NODE_ENV: 'production',
    DATABASE_URL: database.url,
    PROVIDER_MEDIA_DIR: path.join(laptop.folder, 'media'),
    PROVIDER_SECRET_KEY: randomBytes(32).toString('base64'),
    SHUTDOWN_GRACE_SECONDS: '10',
  }
  const program = laptop.start(env, 'provider')
  const base = `http://127.0.0.1:${laptop.ports.PROVIDER_PORT}`
  await eventually(async () => (await fetch(`${base}/readyz`)).status === 200)
  program.kill('SIGTERM')
  await eventually(async () => (await fetch(`${base}/readyz`)).status === 503, 4000)
  expect((await fetch(`${base}/v1/models`)).status).toBe(401)
  expect(await program.exit).toEqual({ code: 0, signal: null })
})
