import { createRequire } from 'node:module'
import cron from 'node-cron'
import { z } from 'zod'
import * as setting from '../platform/settings.ts'
import type { SettingsReader } from '../platform/settings.ts'
import type { Keys } from './domain/keys.ts'
import { readTraceSettings } from './domain/trace-settings.ts'
import { noKeys, parseKeys, withSources } from './sources/keys.ts'

const cronPattern = z.string().refine((pattern) => cron.validate(pattern), 'is not a cron pattern')
/** The largest object that S3 accepts in one upload. */
const archivedBytes = setting.positiveInt.refine((bytes) => bytes <= 5_368_709_120, 'must be at most 5368709120')
const s3Client = '@aws-sdk/client-s3'

/** The API transports keys and results, so plain http is accepted only for loopback addresses. */
const safeApiUrl = setting.apiUrl.refine(
  (url) => url.startsWith('https:') || setting.isLoopback(new URL(url).hostname),
  'must be an https URL',
)

/** Alerts contain key names and addresses, so plain http is accepted only for loopback. The path may be a secret. */
const alertUrl = z
  .url({ protocol: /^https?$/, error: 'must be an http or https URL' })
  .refine((url) => url.startsWith('https:') || setting.isLoopback(new URL(url).hostname), 'must be an https URL')

/**
 * Reads the receiver's settings. In production, the database, the keys and the URLs have no default. Elsewhere `local`
 * provides the database and the keys.
 */
export function readReceiverSettings(
  reader: SettingsReader,
  { production, local }: { production: boolean; local: { databaseUrl: string | undefined } & DemoKeys },
) {
  const { withDefault, optional, required } = reader
  const port = withDefault('PORT', setting.port, 3000)
  const internalHost = withDefault('INTERNAL_HOST', setting.listenHost, '127.0.0.1')
  const internalToken = optional('INTERNAL_TOKEN', z.string().min(32, 'must have at least 32 characters'))
  if (
    !setting.isLoopback(internalHost) &&
    internalToken === undefined &&
    !reader.problems.some(({ name }) => name.includes('INTERNAL_TOKEN'))
  ) {
    reader.problems.push({ name: 'INTERNAL_TOKEN', message: 'is required when INTERNAL_HOST is not loopback' })
  }
  const mediaArchive = readArchive(reader)
  const sources = readSources(reader, production ? { keys: undefined } : local, mediaArchive)
  const httpsUrl = setting.httpUrl.refine((url) => url.startsWith('https:'), 'must be an https URL')

  return {
    production,
    databaseUrl: production
      ? required('DATABASE_URL', setting.postgresUrl, '')
      : withDefault('DATABASE_URL', setting.postgresUrl, local.databaseUrl ?? ''),
    databasePoolSize: withDefault('DATABASE_POOL_SIZE', setting.poolSize, 10),
    host: withDefault('HOST', setting.listenHost, '0.0.0.0'),
    port,
    internalHost,
    internalPort: withDefault('INTERNAL_PORT', setting.port, 3001),
    internalToken,
    generationApiUrl: readApiUrl(reader, { production, isNeeded: sources.hasDefaultSource }),
    ...sources,
    webhookPublicUrl: production
      ? required('WEBHOOK_PUBLIC_URL', httpsUrl, '')
      : withDefault('WEBHOOK_PUBLIC_URL', setting.httpUrl, `http://127.0.0.1:${port}/webhooks`),
    mediaHosts: optional('MEDIA_HOSTS', setting.mediaHosts),
    mediaArchive,
    mediaArchiveMaxBytes: withDefault('MEDIA_ARCHIVE_MAX_BYTES', archivedBytes, 536_870_912),
    mediaArchiveRetentionDays: optional('MEDIA_ARCHIVE_RETENTION_DAYS', setting.positiveInt),
    ffmpegPath: optional('FFMPEG_PATH', setting.absolutePath),
    maxBodyBytes: withDefault('MAX_BODY_BYTES', setting.positiveInt, 1_048_576),
    stuckAfterSeconds: withDefault('STUCK_AFTER_SECONDS', setting.positiveInt, 120),
    reconcileCron: withDefault('RECONCILE_CRON', cronPattern, '*/30 * * * * *'),
    fetchRatePerMinute: withDefault('FETCH_RATE_PER_MINUTE', setting.positiveInt, 100),
    fetchRatePerAccount: withDefault('FETCH_RATE_PER_ACCOUNT_PER_MINUTE', setting.positiveInt, 500),
    retentionDays: withDefault('RETENTION_DAYS', setting.positiveInt, 30),
    retentionCron: withDefault('RETENTION_CRON', cronPattern, '17 * * * *'),
    quarantineMaxRows: withDefault('QUARANTINE_MAX_ROWS', setting.positiveInt, 10_000),
    quarantineMaxBytes: withDefault('QUARANTINE_MAX_BYTES', setting.positiveInt, 67_108_864),
    migrateOnStart: withDefault('MIGRATE_ON_START', setting.bool, true),
    trustProxy: withDefault('TRUST_PROXY', setting.trustProxy, 'loopback'),
    internalTrustProxy: withDefault('INTERNAL_TRUST_PROXY', setting.trustProxy, 'loopback'),
    alertWebhookUrl: optional('ALERT_WEBHOOK_URL', alertUrl),
    traces: readTraceSettings(reader),
    ...setting.readConnectionSettings(reader),
  }
}

/** Reads the URL of the default source's API, empty in production without that source. */
function readApiUrl(reader: SettingsReader, { production, isNeeded }: { production: boolean; isNeeded: boolean }) {
  const name = 'GENERATION_API_URL'
  if (!production) return reader.withDefault(name, setting.apiUrl, 'http://127.0.0.1:4000')
  return isNeeded ? reader.required(name, safeApiUrl, '') : (reader.optional(name, safeApiUrl) ?? '')
}

/** Reads where media are archived. For S3, also reads the endpoint and region of AWS's own settings. */
function readArchive({ optional, problems }: SettingsReader) {
  const place = optional('MEDIA_ARCHIVE', setting.filesPlace)
  if (place?.kind !== 's3') return place
  if (!isInstalled(s3Client))
    problems.push({
      name: 'MEDIA_ARCHIVE',
      message: `needs ${s3Client}, which is not installed: run npm i ${s3Client}`,
    })
  const endpoint = optional('AWS_ENDPOINT_URL_S3', setting.httpUrl) ?? optional('AWS_ENDPOINT_URL', setting.httpUrl)
  return {
    ...place,
    endpoint,
    region: optional('AWS_REGION', setting.nonEmpty) ?? optional('AWS_DEFAULT_REGION', setting.nonEmpty),
  }
}

function isInstalled(packageName: string): boolean {
  try {
    createRequire(import.meta.url).resolve(packageName)
    return true
  } catch {
    return false
  }
}

export type ReceiverSettings = ReturnType<typeof readReceiverSettings>

/** The keys of a laptop, which apply where none are set, and their file. */
type DemoKeys = { keys: string | undefined; demoKeysFile?: string }

/** Reads the keys from the file, GENERATION_KEYS or `fallback`, and records problems. Undefined if none is given. */
function readKeys(reader: SettingsReader, file: string | undefined, fallback: string | undefined): Keys | undefined {
  if (file !== undefined && reader.optional('GENERATION_KEYS', setting.nonEmpty) !== undefined) {
    reader.problems.push({ name: 'GENERATION_KEYS and GENERATION_KEYS_FILE', message: 'are both set: unset one' })
  }
  const name = file === undefined ? 'GENERATION_KEYS' : 'GENERATION_KEYS_FILE'
  const text =
    file === undefined
      ? (reader.optional('GENERATION_KEYS', setting.nonEmpty) ?? fallback)
      : setting.readFileSetting(reader, name, file)
  if (text === undefined) return file === undefined ? undefined : noKeys
  return parsed(reader, { name, file }, () => parseKeys(text)) ?? noKeys
}

/** Reads the keys of all sources, and where they come from. SOURCES_FILE alone gives no default source. */
export function readSources(reader: SettingsReader, demo: DemoKeys, archive?: setting.FilesPlace) {
  const name = 'SOURCES_FILE'
  const keysFile = reader.optional('GENERATION_KEYS_FILE', setting.nonEmpty)
  const sourcesFile = reader.optional(name, setting.nonEmpty)
  const own = readKeys(reader, keysFile, demo.keys)
  const text = sourcesFile === undefined ? undefined : setting.readFileSetting(reader, name, sourcesFile)
  const all =
    text === undefined
      ? undefined
      : parsed(reader, { name, file: sourcesFile }, () => withSources(own ?? noKeys, text, archive))
  const hasDefaultSource = own !== undefined || sourcesFile === undefined
  if (own === undefined && hasDefaultSource)
    reader.problems.push({ name: 'GENERATION_KEYS or GENERATION_KEYS_FILE', message: 'is required' })
  const isDemo =
    demo.keys !== undefined &&
    keysFile === undefined &&
    reader.optional('GENERATION_KEYS', setting.nonEmpty) === undefined
  const demoKeysFile = isDemo ? demo.demoKeysFile : undefined
  return { keys: all ?? own ?? noKeys, hasDefaultSource, keysFile, demoKeysFile, sourcesFile }
}

type KeysOrigin = { name: string; file: string | undefined }

function parsed<T>({ problems }: SettingsReader, { name, file }: KeysOrigin, parse: () => T): T | undefined {
  try {
    return parse()
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error)
    // The path is no secret by mistake: a file was read from it.
    problems.push({ name: file === undefined ? name : `${name} (${file})`, message })
    return undefined
  }
}
