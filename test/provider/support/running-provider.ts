import { randomBytes } from 'node:crypto'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { readConfig } from '../../../src/config/config.ts'
import { createLogger } from '../../../src/platform/logger.ts'
import { translate } from '../../../src/provider/messages/messages.ts'
import {
  createKey,
  grantCredits,
  type CommandDeps,
  type WantedKey,
  openProvider,
} from '../../../src/provider/operating/commands.ts'
import { startProvider } from '../../../src/provider/program.ts'
import type { ProviderSettings } from '../../../src/provider/settings.ts'
import { createTestDatabase, type TestDatabase, type TestServer } from '../../support/database.ts'
import { send } from '../../support/http.ts'
import { freePort } from './free-port.ts'

export type Answer = {
  status: number
  headers: Headers
  // Tests say themselves what they expect of a body.
  // oxlint-disable-next-line typescript/no-explicit-any
  body: any
}

export type CallOptions = {
  key?: string
  headers?: Record<string, string>
  body?: unknown
  rawBody?: string | Uint8Array
}

export type TestProvider = {
  url: string
  consoleUrl: string
  settings: ProviderSettings
  database: TestDatabase
  deps: CommandDeps
  createKey: (wanted?: Partial<WantedKey>) => ReturnType<typeof createKey>
  grant: (account: string, credits: number | string) => Promise<unknown>
  call: (method: string, path: string, options?: CallOptions) => Promise<Answer>
  stop: () => Promise<void>
}

/** Settings of a provider on a free port, quick enough for a test. */
export async function testSettings(
  databaseUrl: string,
  changes: Partial<ProviderSettings> = {},
): Promise<ProviderSettings> {
  const port = await freePort()
  const mediaDir = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-media-'))
  const env = {
    DATABASE_URL: databaseUrl,
    PROVIDER_PORT: String(port),
    PROVIDER_CONSOLE_PORT: '0',
    PROVIDER_MEDIA_DIR: mediaDir,
    PROVIDER_SECRET_KEY: randomBytes(32).toString('base64'),
    PROVIDER_DISPATCH_INTERVAL_MS: '250',
    PROVIDER_BACKOFF_BASE_MS: '50',
    PROVIDER_WEBHOOK_TIMEOUT_MS: '1500',
    PROVIDER_RATE_PER_KEY: '100000',
    PROVIDER_RATE_PER_ACCOUNT: '100000',
  }
  const { provider } = readConfig(env, ['provider'], { databaseUrl: undefined, keys: undefined, secretKey: undefined })
  if (provider === undefined) throw new Error('no provider settings')
  return { ...provider, ...changes }
}

/** A whole provider on a new database, reached over a real socket. */
export async function startTestProvider(
  changes: Partial<ProviderSettings> = {},
  server: TestServer = 'embedded',
): Promise<TestProvider> {
  const database = await createTestDatabase(server)
  const settings = await testSettings(database.url, changes)
  const program = await startProvider({ settings, logger: createLogger('silent') })
  const { deps, close } = openProvider({ databaseUrl: database.url, secretKey: settings.secretKey })
  const url = program.urls['api'] ?? ''
  let keys = 0
  return {
    url,
    consoleUrl: program.urls['developer console'] ?? '',
    settings,
    database,
    deps,
    createKey: (wanted = {}) => {
      keys += 1
      return createKey(deps, { account: `account-${keys}`, name: `key-${keys}`, environment: 'sandbox', ...wanted })
    },
    grant: (account, credits) => grantCredits(deps, { account, credits }),
    call: (method, where, options) => call(url, method, where, options),
    stop: async () => {
      await program.stop(1000)
      await close()
      await database.drop()
      await fs.rm(settings.mediaDir, { recursive: true, force: true })
    },
  }
}

export async function call(url: string, method: string, where: string, options: CallOptions = {}): Promise<Answer> {
  const { key, headers = {}, body, rawBody } = options
  const hasBody = body !== undefined || rawBody !== undefined
  const {
    status,
    headers: received,
    text,
  } = await send(`${url}${where}`, method, {
    headers: {
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
      ...(hasBody ? { 'content-type': 'application/json' } : {}),
      ...headers,
    },
    ...(hasBody ? { body: rawBody ?? JSON.stringify(body) } : {}),
  })
  const isJson = received.get('content-type')?.includes('json') ?? false
  const parsed = isJson && text !== '' ? JSON.parse(text) : text
  if (where.startsWith('/v1/') && received.get('content-language') === 'en') expectKnownMessage(parsed)
  return { status, headers: received, body: parsed }
}

/** Any test may come upon a message that was forgotten in src/provider/messages. */
function expectKnownMessage(body: { error?: { type?: string; message?: string } }): void {
  const { type, message } = body.error ?? {}
  if (type === undefined || message === undefined || translate(message, 'de') !== undefined) return
  throw new Error(`src/provider/messages/en.json lacks the message: ${message}`)
}
