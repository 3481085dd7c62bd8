import {
  isGiven,
  logLevel,
  postgresUrl,
  type ProcessEnvironment,
  type SettingProblem,
  settingsReader,
  type SettingsReader,
  withSetting,
} from '../platform/settings.ts'
import { migrations as provider } from '../provider/domain/migrations.ts'
import { type ProviderSettings, readProviderSettings, secretKeySchema } from '../provider/settings.ts'
import { migrations as receiver } from '../receiver/domain/migrations.ts'
import { readReceiverSettings, type ReceiverSettings } from '../receiver/settings.ts'
import { misspeltSettings } from './misspelt.ts'

export const programs = ['receiver', 'provider'] as const
export type Program = (typeof programs)[number]

/** The laptop's values for settings that production requires. They are kept under `.data/`. */
export type LocalDefaults = {
  databaseUrl: string | undefined
  keys: string | undefined
  demoKeysFile?: string
  secretKey: string | undefined
}

export const noDefaults: LocalDefaults = { databaseUrl: undefined, keys: undefined, secretKey: undefined }

export type Config = {
  production: boolean
  logLevel: string
  receiver: ReceiverSettings | undefined
  provider: ProviderSettings | undefined
}

export function isProduction(env: ProcessEnvironment): boolean {
  return env['NODE_ENV'] === 'production'
}

/** True if no database is configured, so that the embedded PostgreSQL must start. */
export function needsEmbeddedPostgres(env: ProcessEnvironment, wanted: readonly Program[]): boolean {
  if (isProduction(env) || isGiven(env, 'DATABASE_URL')) return false
  return wanted.includes('receiver') || !isGiven(env, 'PROVIDER_DATABASE_URL')
}

/** Reads the environment into typed settings for the programs in `wanted`. Throws ConfigError. */
export function readConfig(env: ProcessEnvironment, wanted: readonly Program[], laptop: LocalDefaults): Config {
  const production = isProduction(env)
  const local = production ? noDefaults : laptop
  const reader = settingsReader(env)
  const config = {
    production,
    logLevel: reader.withDefault('LOG_LEVEL', logLevel, 'info'),
    receiver: wanted.includes('receiver') ? readReceiverSettings(reader, { production, local }) : undefined,
    provider: wanted.includes('provider') ? readProviderSettings(reader, { production, local }) : undefined,
  }
  reader.problems.push(...misspeltSettings(env, settingNames()))
  const problems = new Map(reader.problems.map((problem) => [`${problem.name} ${problem.message}`, problem]))
  if (problems.size > 0) throw new ConfigError([...problems.values()])
  return config
}

/** The names of all settings that the two programs read. */
export function settingNames(): Set<string> {
  const names = new Set<string>()
  const env = new Proxy<ProcessEnvironment>({}, { get: (_, name) => void names.add(String(name)) })
  const [reader, laptop] = [settingsReader(env), { production: isProduction(env), local: noDefaults }]
  reader.optional('LOG_LEVEL', logLevel)
  readReceiverSettings(reader, laptop)
  readProviderSettings(reader, laptop)
  return names
}

/** Reads some settings for a command on the command line. Throws ConfigError with all problems. */
export function readSome<T>(env: ProcessEnvironment, read: (reader: SettingsReader) => T): T {
  const reader = settingsReader(env)
  const value = read(reader)
  if (reader.problems.length > 0) throw new ConfigError(reader.problems)
  return value
}

/** The database URL for a command on the command line. Throws ConfigError if none is set. */
export function readDatabaseUrl(env: ProcessEnvironment, program: Program, fallback: string | undefined): string {
  return readSome(env, (reader) => {
    const own = program === 'provider' ? reader.optional('PROVIDER_DATABASE_URL', postgresUrl) : undefined
    const url = own ?? reader.optional('DATABASE_URL', postgresUrl) ?? fallback
    if (url === undefined && reader.problems.length === 0)
      reader.problems.push({ name: 'DATABASE_URL', message: 'is required' })
    return url ?? ''
  })
}

/** The key that encrypts signing secrets, for a command on the command line. Throws ConfigError if none is set. */
export function readProviderSecretKey(env: ProcessEnvironment, fallback: string | undefined): Buffer {
  const given = isGiven(env, 'PROVIDER_SECRET_KEY') ? env : withSetting(env, 'PROVIDER_SECRET_KEY', fallback)
  return readSome(given, (reader) => reader.required('PROVIDER_SECRET_KEY', secretKeySchema, Buffer.alloc(0)))
}

/** Lists every invalid setting at once. The process ends with exit code 78 (EX_CONFIG). */
export class ConfigError extends Error {
  override name = 'ConfigError'
  code = 'config' as const
  constructor(problems: readonly SettingProblem[]) {
    super(['invalid settings:', ...problems.map(({ name, message }) => `  ${name} ${message}`)].join('\n'))
  }
}

export const migrationsOf = { receiver, provider } as const satisfies Record<
  Program,
  { schema: string; folder: string }
>
