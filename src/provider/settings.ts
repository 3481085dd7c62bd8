import { z } from 'zod'
import { jsonOf } from '../platform/json-text.ts'
import * as setting from '../platform/settings.ts'
import type { SettingsReader } from '../platform/settings.ts'
import { builtInCatalog, readCatalog, tokenProblems } from './catalog/catalog-file.ts'
import { engineSettingsSchema } from './engines/engine-settings.ts'

export const secretKeySchema = z
  .base64()
  .transform((text) => Buffer.from(text, 'base64'))
  .refine((bytes) => bytes.length === 32, 'must be 32 bytes in base64')

const engines = z
  .string()
  .refine((text) => jsonOf(text) !== undefined, { error: 'must be JSON', abort: true })
  .transform(jsonOf)
  .pipe(engineSettingsSchema)

/** Reads the catalog and the name of its file. Every problem in the file is recorded under PROVIDER_CATALOG. */
export function readCatalogSettings({ optional, problems }: SettingsReader) {
  const catalogFile = optional('PROVIDER_CATALOG', setting.nonEmpty)
  const reading = readCatalog(catalogFile)
  problems.push(...reading.problems.map((message) => ({ name: 'PROVIDER_CATALOG', message })))
  return { catalog: reading.catalog ?? builtInCatalog(), catalogFile }
}

type Surroundings = { production: boolean; local: { databaseUrl: string | undefined; secretKey: string | undefined } }

/** Reads the provider's settings. Outside production, `local` provides the database and the secret key. */
export function readProviderSettings(
  reader: SettingsReader,
  { production, local: { databaseUrl: localUrl, secretKey: localKey = '' } }: Surroundings,
) {
  const { withDefault, optional, required, problems } = reader
  const port = withDefault('PROVIDER_PORT', setting.port, 4000)
  const baseUrl = withDefault('PROVIDER_BASE_URL', setting.apiUrl, `http://127.0.0.1:${port}`)
  const consoleHost = withDefault('PROVIDER_CONSOLE_HOST', setting.listenHost, '127.0.0.1')
  const consoleToken = optional('PROVIDER_CONSOLE_TOKEN', z.string().min(32, 'must have at least 32 characters'))
  if (
    !setting.isLoopback(consoleHost) &&
    consoleToken === undefined &&
    !problems.some(({ name }) => name.includes('PROVIDER_CONSOLE_TOKEN'))
  ) {
    const message = 'is required when PROVIDER_CONSOLE_HOST is not loopback'
    problems.push({ name: 'PROVIDER_CONSOLE_TOKEN', message })
  }
  const localOrigins = (name: string) => {
    const origins = withDefault(name, setting.commaSeparated, [])
    if (production && origins.length > 0)
      problems.push({ name, message: 'is for local use only: unset it in production' })
    return origins
  }
  const webhookAllow = localOrigins('PROVIDER_WEBHOOK_ALLOW')
  const referenceAllow = localOrigins('PROVIDER_REFERENCE_ALLOW')
  const shared = optional('DATABASE_URL', setting.postgresUrl) ?? localUrl
  const databaseUrl = optional('PROVIDER_DATABASE_URL', setting.postgresUrl) ?? shared
  if (production && databaseUrl === undefined)
    problems.push({ name: 'PROVIDER_DATABASE_URL or DATABASE_URL', message: 'is required' })

  const { catalog, catalogFile } = readCatalogSettings(reader)
  const missingTokens = tokenProblems(catalog, (name) => optional(name, setting.nonEmpty))
  problems.push(...missingTokens.map((message) => ({ name: 'PROVIDER_CATALOG', message })))

  return {
    production,
    databaseUrl: databaseUrl ?? '',
    databasePoolSize: withDefault('DATABASE_POOL_SIZE', setting.poolSize, 10),
    host: withDefault('PROVIDER_HOST', setting.listenHost, '127.0.0.1'),
    port,
    baseUrl,
    mediaUrl: withDefault('PROVIDER_MEDIA_URL', setting.httpUrl, `${baseUrl}/media`),
    consoleHost,
    consolePort: withDefault('PROVIDER_CONSOLE_PORT', setting.port, 4001),
    consoleToken,
    mediaDir: withDefault('PROVIDER_MEDIA_DIR', setting.nonEmpty, '.data/media'),
    webhookAllow,
    referenceAllow,
    engines: optional('PROVIDER_ENGINES', engines),
    catalog,
    catalogFile,
    dispatchIntervalMs: withDefault('PROVIDER_DISPATCH_INTERVAL_MS', setting.positiveInt, 30_000),
    backoffBaseMs: withDefault('PROVIDER_BACKOFF_BASE_MS', setting.positiveInt, 30_000),
    backoffCapMs: withDefault('PROVIDER_BACKOFF_CAP_MS', setting.positiveInt, 3_600_000),
    webhookTimeoutMs: withDefault('PROVIDER_WEBHOOK_TIMEOUT_MS', setting.positiveInt, 10_000),
    ratePerKey: withDefault('PROVIDER_RATE_PER_KEY', setting.positiveInt, 120),
    ratePerAccount: withDefault('PROVIDER_RATE_PER_ACCOUNT', setting.positiveInt, 600),
    secretKey: production
      ? required('PROVIDER_SECRET_KEY', secretKeySchema, Buffer.alloc(0))
      : withDefault('PROVIDER_SECRET_KEY', secretKeySchema, Buffer.from(localKey, 'base64')),
    cancelEndpoint: withDefault('PROVIDER_CANCEL_ENDPOINT', setting.onOff, false),
    migrateOnStart: withDefault('MIGRATE_ON_START', setting.bool, true),
    trustProxy: withDefault('TRUST_PROXY', setting.trustProxy, 'loopback'),
    internalTrustProxy: withDefault('INTERNAL_TRUST_PROXY', setting.trustProxy, 'loopback'),
    ...setting.readConnectionSettings(reader),
  }
}

export type ProviderSettings = ReturnType<typeof readProviderSettings>
