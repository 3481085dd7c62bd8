import { randomBytes } from 'node:crypto'
import fs from 'node:fs/promises'
import path from 'node:path'
import { z } from 'zod'
import { isProduction, needsEmbeddedPostgres, noDefaults, type LocalDefaults, type Program } from '../config/config.ts'
import type { Logger } from '../platform/logger.ts'
import type { ProcessEnvironment } from '../platform/settings.ts'
import type { DemoKey } from '../provider/program.ts'
import { lockDataDir } from './data-lock.ts'
import { startEmbeddedPostgres } from './embedded-postgres.ts'

export const dataDir = path.resolve('.data')

/** The laptop's values for settings that production requires, and its embedded PostgreSQL. */
export type Local = {
  defaults: LocalDefaults
  demoKeys: readonly DemoKey[]
  isEmbedded: boolean
  /** Resolves with a reason if the embedded PostgreSQL ends unexpectedly. */
  ended: Promise<string>
  close: () => Promise<void>
}

const nothing: Local = {
  defaults: noDefaults,
  demoKeys: [],
  isEmbedded: false,
  ended: new Promise(() => {}),
  close: async () => {},
}

/** Opens `.data/`: starts the embedded PostgreSQL if it is needed, and reads the demo keys and the secret key. */
export async function openLocal(
  env: ProcessEnvironment,
  { wanted, logger }: { wanted: readonly Program[]; logger: Logger },
): Promise<Local> {
  if (isProduction(env)) return nothing
  await fs.mkdir(dataDir, { recursive: true })
  if (!needsEmbeddedPostgres(env, wanted)) return { ...nothing, ...(await readLocalSecrets(env)) }

  const unlock = await lockDataDir(dataDir)
  try {
    const secrets = await readLocalSecrets(env)
    const server = await startEmbeddedPostgres({ dataDir, logger })
    return {
      demoKeys: secrets.demoKeys,
      isEmbedded: true,
      defaults: { ...secrets.defaults, databaseUrl: server.url },
      ended: server.ended,
      close: async () => {
        await server.stop()
        await unlock()
      },
    }
  } catch (error) {
    await unlock()
    throw error
  }
}

/** Adds settings that connect both programs on a laptop and shorten the dispatch interval to one second. */
export function laptopEnvironment(env: ProcessEnvironment, wanted: readonly Program[]): ProcessEnvironment {
  if (isProduction(env) || wanted.length < 2) return env
  const receiver = `http://127.0.0.1:${env['PORT'] || '3000'}`
  const laptop: ProcessEnvironment = {
    GENERATION_API_URL: `http://127.0.0.1:${env['PROVIDER_PORT'] || '4000'}`,
    PROVIDER_WEBHOOK_ALLOW: `${receiver},${receiver.replace('127.0.0.1', 'localhost')}`,
    PROVIDER_DISPATCH_INTERVAL_MS: '1000',
  }
  return { ...laptop, ...Object.fromEntries(Object.entries(env).filter(([, value]) => value)) }
}

const secretsFile = path.join(dataDir, 'demo-keys.json')

/**
 * Reads the demo keys and the secret key. Creates them on first use, and keeps them across restarts. Production has
 * none.
 */
export async function readLocalSecrets(env: ProcessEnvironment): Promise<Pick<Local, 'defaults' | 'demoKeys'>> {
  if (isProduction(env)) return nothing
  const secrets = parseSecrets(await fs.readFile(secretsFile, 'utf8').catch(createSecrets))
  const demoKeys = (['sandbox', 'live'] as const).map((environment) => ({
    account: 'demo',
    name: `demo-${environment}`,
    environment,
    apiKey: secrets[environment].api_key,
    signingSecret: secrets[environment].signing_secret,
    credits: environment === 'live' ? 10_000 : 0,
  }))
  const keys = demoKeys.map(({ name, environment }) => ({ name, ...secrets[environment] }))
  const defaults = { databaseUrl: undefined, keys: JSON.stringify(keys), demoKeysFile: secretsFile }
  return { defaults: { ...defaults, secretKey: secrets.secret_key }, demoKeys }
}

const storedKeySchema = z.object({ api_key: z.string(), signing_secret: z.string() })
const secretsSchema = z.object({ secret_key: z.string(), live: storedKeySchema, sandbox: storedKeySchema })

/** Parses the file of secrets. Throws if a member is missing or malformed, for example after a bad edit. */
function parseSecrets(text: string): z.infer<typeof secretsSchema> {
  try {
    return secretsSchema.parse(JSON.parse(text))
  } catch {
    throw new Error(`${secretsFile} does not contain valid demo keys: delete it to create new ones`)
  }
}

async function createSecrets(): Promise<string> {
  const token = () => randomBytes(24).toString('base64url')
  // Standard Webhooks needs a secret in base64 after `whsec_`.
  const secret = () => `whsec_${randomBytes(24).toString('base64')}`
  const secrets = {
    secret_key: randomBytes(32).toString('base64'),
    live: { api_key: `service_live_${token()}`, signing_secret: secret() },
    sandbox: { api_key: `service_test_${token()}`, signing_secret: secret() },
  }
  await fs.mkdir(dataDir, { recursive: true })
  const draft = `${secretsFile}.${process.pid}`
  await fs.writeFile(draft, JSON.stringify(secrets, null, 2), { mode: 0o600 })
  // A link is atomic and never overwrites a file that another program created first.
  await fs.link(draft, secretsFile).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw error
  })
  await fs.rm(draft)
  return fs.readFile(secretsFile, 'utf8')
}
