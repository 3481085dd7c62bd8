import { randomBytes } from 'node:crypto'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import {
  type Config,
  ConfigError,
  isProduction,
  type LocalDefaults,
  needsEmbeddedPostgres,
  type Program,
  readConfig,
  readDatabaseUrl,
  readProviderSecretKey,
} from '../../src/config/config.ts'
import type { ProcessEnvironment } from '../../src/platform/settings.ts'
import { parseKeys } from '../../src/receiver/sources/keys.ts'
import { long } from '../chaos/length.ts'
import { startProcess } from '../platform/support/processes.ts'
import { childEnv } from '../support/child-env.ts'

const both: Program[] = ['receiver', 'provider']
const nothing: LocalDefaults = { databaseUrl: undefined, keys: undefined, secretKey: undefined }
const secretKey = randomBytes(32).toString('base64')
const key = { name: 'live', api_key: 'service_live_hush', signing_secret: 'whsec_hush_hush_hush' }
const local: LocalDefaults = { databaseUrl: 'postgres://local/mediadock', keys: JSON.stringify([key]), secretKey }
const production: ProcessEnvironment = {
  NODE_ENV: 'production',
  DATABASE_URL: 'postgres://user:hush@db.test/mediadock',
  GENERATION_API_URL: 'https://api.test',
  GENERATION_KEYS: JSON.stringify([key]),
  WEBHOOK_PUBLIC_URL: 'https://hooks.test/webhooks',
  PROVIDER_SECRET_KEY: secretKey,
}

const receiver = (env: ProcessEnvironment, defaults = local) =>
  readConfig(env, ['receiver'], defaults).receiver ?? expect.fail()
const provider = (env: ProcessEnvironment, defaults = local) =>
  readConfig(env, ['provider'], defaults).provider ?? expect.fail()

/** The lines of the one ConfigError, without its first. */
function problemsOf(env: ProcessEnvironment, wanted = both, defaults = local): string[] {
  let config: Config
  try {
    config = readConfig(env, wanted, defaults)
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error
    expect(error).toMatchObject({ name: 'ConfigError', code: 'config' })
    const [head, ...lines] = error.message.split('\n')
    expect(head).toBe('invalid settings:')
    return lines.map((line) => line.replace(/^ {2}/, ''))
  }
  return expect.fail(`nothing was wrong: ${Object.keys(config)}`)
}

describe('defaults', () => {
  it('of the receiver are those of the contract', () => {
    const { keys, ...settings } = receiver({})
    expect(settings).toEqual({
      production: false,
      databaseUrl: 'postgres://local/mediadock',
      databasePoolSize: 10,
      host: '0.0.0.0',
      port: 3000,
      internalHost: '127.0.0.1',
      internalPort: 3001,
      internalToken: undefined,
      generationApiUrl: 'http://127.0.0.1:4000',
      hasDefaultSource: true,
      keysFile: undefined,
      demoKeysFile: undefined,
      sourcesFile: undefined,
      webhookPublicUrl: 'http://127.0.0.1:3000/webhooks',
      mediaHosts: undefined,
      mediaArchive: undefined,
      mediaArchiveMaxBytes: 536_870_912,
      ffmpegPath: undefined,
      maxBodyBytes: 1_048_576,
      stuckAfterSeconds: 120,
      reconcileCron: '*/30 * * * * *',
      fetchRatePerMinute: 100,
      fetchRatePerAccount: 500,
      retentionDays: 30,
      retentionCron: '17 * * * *',
      quarantineMaxRows: 10_000,
      quarantineMaxBytes: 67_108_864,
      migrateOnStart: true,
      trustProxy: 'loopback',
      internalTrustProxy: 'loopback',
      shutdownGraceSeconds: 25,
      drainSeconds: 5,
      keepAliveSeconds: 75,
    })
    expect(keys.all).toEqual([
      {
        name: 'live',
        source: keys.defaultSource,
        apiKey: 'service_live_hush',
        signingSecret: 'whsec_hush_hush_hush',
        retired: false,
        environment: 'live',
      },
    ])
    expect(readConfig({}, both, local)).toMatchObject({ production: false, logLevel: 'info' })
  })

  it('of the provider are those of the contract', () => {
    expect(provider({})).toMatchObject({
      production: false,
      databaseUrl: 'postgres://local/mediadock',
      host: '127.0.0.1',
      port: 4000,
      baseUrl: 'http://127.0.0.1:4000',
      mediaUrl: 'http://127.0.0.1:4000/media',
      consoleHost: '127.0.0.1',
      consolePort: 4001,
      consoleToken: undefined,
      mediaDir: '.data/media',
      webhookAllow: [],
      dispatchIntervalMs: 30_000,
      backoffBaseMs: 30_000,
      backoffCapMs: 3_600_000,
      webhookTimeoutMs: 10_000,
      ratePerKey: 120,
      ratePerAccount: 600,
      secretKey: Buffer.from(secretKey, 'base64'),
      cancelEndpoint: false,
      migrateOnStart: true,
      shutdownGraceSeconds: 25,
    })
  })

  it('of an archive are those of AWS', () => {
    expect(receiver({ MEDIA_ARCHIVE: 'file:///srv/media/', AWS_ENDPOINT_URL: 'no URL' }).mediaArchive).toEqual({
      kind: 'file',
      root: '/srv/media',
    })
    const env = {
      MEDIA_ARCHIVE: 's3://bucket/kept/here/',
      AWS_ENDPOINT_URL: 'http://s3.internal:9000/',
      AWS_DEFAULT_REGION: 'eu-central-1',
    }
    const place = { kind: 's3', bucket: 'bucket', prefix: 'kept/here' }
    expect(receiver(env).mediaArchive).toEqual({
      ...place,
      endpoint: 'http://s3.internal:9000',
      region: 'eu-central-1',
    })
    expect(receiver({ MEDIA_ARCHIVE: 's3://bucket' }).mediaArchive).toEqual({
      ...place,
      prefix: '',
      endpoint: undefined,
      region: undefined,
    })
  })

  it('derived from another setting change with it', () => {
    expect(receiver({ SHUTDOWN_GRACE_SECONDS: '10' }).drainSeconds).toBe(2)
    expect(receiver({ SHUTDOWN_GRACE_SECONDS: '300' }).drainSeconds).toBe(5)
    expect(receiver({ PORT: '8080' }).webhookPublicUrl).toBe('http://127.0.0.1:8080/webhooks')
    expect(provider({ PROVIDER_PORT: '8081' })).toMatchObject({
      baseUrl: 'http://127.0.0.1:8081',
      mediaUrl: 'http://127.0.0.1:8081/media',
    })
    expect(provider({ PROVIDER_BASE_URL: 'https://api.test/' })).toMatchObject({
      baseUrl: 'https://api.test',
      mediaUrl: 'https://api.test/media',
    })
    expect(provider({ DATABASE_URL: 'postgres://a/b' }).databaseUrl).toBe('postgres://a/b')
    expect(provider({ DATABASE_URL: 'postgres://a/b', PROVIDER_DATABASE_URL: 'postgres://c/d' }).databaseUrl).toBe(
      'postgres://c/d',
    )
  })

  it('apply to empty variables, as in a compose file', () => {
    const names = Object.keys(malformed).concat('GENERATION_KEYS_FILE', 'SOURCES_FILE')
    const empty = Object.fromEntries(names.map((name) => [name, '']))
    expect(readConfig(empty, both, local)).toEqual(readConfig({}, both, local))
  })
})

/** For each setting: a value that is taken, and values that are not. */
const malformed: Record<string, { good: string; bad: string[] }> = {
  DATABASE_URL: {
    good: 'postgresql://u:p@db:5432/x?sslmode=require',
    bad: [
      'mysql://hush@x/y',
      'hush',
      'postgres://u:hush@db:port/x',
      'postgres://u:hush@[::1/x',
      'postgres://u:hush@db/x?sslmode=banana',
      'postgres://u:hush@a,b/x?target_session_attrs=any-will-do',
      'postgres://u:hush@db/x?sslmode=verify-full&sslrootcert=/nowhere/root.crt',
    ],
  },
  HOST: { good: '::1', bad: ['http://0.0.0.0', '0.0.0.0:3000', 'a b', '[::1]', 'a..b'] },
  INTERNAL_HOST: { good: 'localhost', bad: ['http://127.0.0.1', '127.0.0.1/'] },
  PROVIDER_HOST: { good: 'provider.internal', bad: ['127.0.0.1:4000'] },
  PROVIDER_CONSOLE_HOST: { good: '127.0.0.2', bad: ['//127.0.0.1'] },
  MEDIA_HOSTS: {
    good: 'a.test, b.test:8443, 127.0.0.1:4000',
    bad: [',,', ' , ', 'https://a.test', 'a.test/path', 'a test', 'a.test:99999'],
  },
  MEDIA_ARCHIVE: {
    good: 'file:///srv/media',
    bad: [
      '/srv/hush',
      'file://hush/srv',
      'file:///srv%2fhush',
      's3:///hush',
      's3://A_hush/x',
      's3://bucket/hush?x=1',
      'https://hush.test/media',
    ],
  },
  MEDIA_ARCHIVE_MAX_BYTES: { good: '5368709120', bad: ['0', '512MB', '5368709121'] },
  FFMPEG_PATH: { good: '/usr/bin/ffmpeg', bad: ['ffmpeg', './hush'] },
  PROVIDER_DATABASE_URL: {
    good: 'postgres://u:p@a:5432,b:5433/x',
    bad: ['http://hush', 'postgres://u:hush@a:5432,b:hush/x'],
  },
  DATABASE_POOL_SIZE: { good: '3', bad: ['2', '1001', 'ten', '5.5'] },
  PORT: { good: '65535', bad: ['65536', '-1', 'http', '3000.5', ' ', '0x10', '1e3', '3000 '] },
  INTERNAL_PORT: { good: '0', bad: ['70000', 'x'] },
  PROVIDER_PORT: { good: '4444', bad: ['70000', 'x', ' '] },
  PROVIDER_CONSOLE_PORT: { good: '4445', bad: ['70000', 'x'] },
  INTERNAL_TOKEN: { good: 'x'.repeat(32), bad: ['h'.repeat(31)] },
  PROVIDER_CONSOLE_TOKEN: { good: 'x'.repeat(32), bad: ['h'.repeat(31)] },
  GENERATION_API_URL: {
    good: 'https://api.test/base/',
    bad: [
      'ftp://hush',
      'api.test',
      'http//hush',
      'https://api.test/v1',
      'https://api.test/base/v1/',
      'https://api.test/?tenant=hush',
      'https://api.test/#hush',
      'https://u:hush@api.test',
    ],
  },
  GENERATION_KEYS: { good: JSON.stringify([key]), bad: ['{', '[]', '{}', '[{}]', 'hush'] },
  WEBHOOK_PUBLIC_URL: { good: 'https://hooks.test/webhooks', bad: ['hooks.test', 'ftp://hooks.test'] },
  PROVIDER_BASE_URL: { good: 'https://api.test', bad: ['api.test', 'https://api.test/v1'] },
  PROVIDER_MEDIA_URL: { good: 'https://media.test', bad: ['media.test'] },
  MAX_BODY_BYTES: { good: '1', bad: ['0', '-5', '1MB', '1.5'] },
  STUCK_AFTER_SECONDS: { good: '1', bad: ['0', 'soon'] },
  RECONCILE_CRON: { good: '*/5 * * * *', bad: ['often', '61 * * * * *', '* * *'] },
  FETCH_RATE_PER_MINUTE: { good: '1', bad: ['0', 'x'] },
  RETENTION_DAYS: { good: '1', bad: ['0', '-1', 'month'] },
  RETENTION_CRON: { good: '0 3 * * *', bad: ['daily-ish'] },
  QUARANTINE_MAX_ROWS: { good: '1', bad: ['0', 'x'] },
  QUARANTINE_MAX_BYTES: { good: '1', bad: ['0', '64MB'] },
  MIGRATE_ON_START: { good: 'false', bad: ['no', '0', 'TRUE'] },
  TRUST_PROXY: { good: 'loopback, 10.0.0.0/8', bad: ['everyone', '10.0.0.0/99', '1.2.3'] },
  INTERNAL_TRUST_PROXY: { good: '10.0.0.5', bad: ['everyone'] },
  SHUTDOWN_GRACE_SECONDS: { good: '1', bad: ['0', '25s'] },
  DRAIN_SECONDS: { good: '0', bad: ['-1', '5s', '25'] },
  KEEP_ALIVE_SECONDS: { good: '620', bad: ['0', '75s', '86401'] },
  LOG_LEVEL: { good: 'debug', bad: ['loud', 'INFO'] },
  PROVIDER_DISPATCH_INTERVAL_MS: { good: '1', bad: ['0', '30s'] },
  PROVIDER_BACKOFF_BASE_MS: { good: '1', bad: ['0', 'x'] },
  PROVIDER_BACKOFF_CAP_MS: { good: '1', bad: ['0', 'x'] },
  PROVIDER_WEBHOOK_TIMEOUT_MS: { good: '1', bad: ['0', 'x'] },
  PROVIDER_RATE_PER_KEY: { good: '1', bad: ['0', 'x'] },
  PROVIDER_RATE_PER_ACCOUNT: { good: '1', bad: ['0', 'x'] },
  PROVIDER_SECRET_KEY: {
    good: secretKey,
    bad: [
      'hush',
      randomBytes(31).toString('base64'),
      randomBytes(33).toString('base64'),
      randomBytes(32).toString('hex'),
    ],
  },
  PROVIDER_CANCEL_ENDPOINT: { good: 'on', bad: ['yes', 'true'] },
}

describe.each(Object.entries(malformed))('%s', (name, { good, bad }) => {
  it(`is accepted: ${good.slice(0, 40)}`, () => {
    expect(() => readConfig({ [name]: good }, both, local)).not.toThrow()
  })

  it.each(bad)('is refused by its name, without its value: %j', (value) => {
    const problems = problemsOf({ [name]: value }, both, local)
    expect(problems).toHaveLength(1)
    expect(problems[0]).toMatch(new RegExp(`^${name} \\S.{5,}`))
    if (value.length > 3) expect(problems[0]).not.toContain(value)
    expect(problems[0]).not.toContain('hush')
  })
})

describe('production', () => {
  it('with nothing set lists everything that is missing, in one error', () => {
    expect(problemsOf({ NODE_ENV: 'production' }, ['receiver'], nothing).sort()).toEqual([
      'DATABASE_URL is required',
      'GENERATION_API_URL is required',
      'GENERATION_KEYS or GENERATION_KEYS_FILE is required',
      'WEBHOOK_PUBLIC_URL is required',
    ])
    expect(problemsOf({ NODE_ENV: 'production' }, ['provider'], nothing).sort()).toEqual([
      'PROVIDER_DATABASE_URL or DATABASE_URL is required',
      'PROVIDER_SECRET_KEY is required',
    ])
    expect(problemsOf({ NODE_ENV: 'production' }, both, nothing)).toHaveLength(6)
  })

  it("uses none of the laptop's defaults", () => {
    expect(problemsOf({ NODE_ENV: 'production' }, both, local)).toHaveLength(6)
  })

  it('lists what is missing beside what is malformed, each once', () => {
    const env = {
      ...production,
      PORT: 'x',
      DATABASE_URL: 'hush',
      WEBHOOK_PUBLIC_URL: '',
      LOG_LEVEL: 'loud',
      PROVIDER_SECRET_KEY: 'hush',
    }
    const names = problemsOf(env, both, nothing).map((line) => line.split(' ', 1).join())
    expect(names.sort()).toEqual([
      'DATABASE_URL',
      'LOG_LEVEL',
      'PORT',
      'PROVIDER_DATABASE_URL',
      'PROVIDER_SECRET_KEY',
      'WEBHOOK_PUBLIC_URL',
    ])
  })

  it('starts with the required settings, and embeds nothing', () => {
    expect(readConfig(production, both, nothing)).toMatchObject({
      production: true,
      receiver: { production: true },
      provider: { production: true },
    })
    expect(needsEmbeddedPostgres(production, both)).toBe(false)
    expect(needsEmbeddedPostgres({ NODE_ENV: 'production' }, both)).toBe(false)
    expect(isProduction({ NODE_ENV: 'Production' })).toBe(false)
  })

  it('requires https for the URL that is sent with every submit', () => {
    expect(
      problemsOf({ ...production, WEBHOOK_PUBLIC_URL: 'http://hooks.test/webhooks' }, ['receiver'], nothing),
    ).toEqual(['WEBHOOK_PUBLIC_URL must be an https URL'])
  })

  it('requires https for the API that receives keys, except on loopback', () => {
    expect(problemsOf({ ...production, GENERATION_API_URL: 'http://api.test' }, ['receiver'], nothing)).toEqual([
      'GENERATION_API_URL must be an https URL',
    ])
    expect(receiver({ ...production, GENERATION_API_URL: 'http://127.0.0.1:4000' }, nothing).generationApiUrl).toBe(
      'http://127.0.0.1:4000',
    )
  })

  it('lists all of these problems at once, each by name', () => {
    const env = {
      ...production,
      MEDIA_HOSTS: ',,',
      GENERATION_API_URL: 'http://api.test/v1',
      GENERATION_KEYS_FILE: '/nowhere',
      DATABASE_URL: 'postgres://u:hush@db/x?sslmode=banana',
    }
    expect(problemsOf(env, ['receiver'], nothing).sort()).toEqual([
      'DATABASE_URL has an unknown sslmode: it is one of disable, allow, prefer, require, verify-ca, verify-full',
      'GENERATION_API_URL must not end in /v1: it is appended to the URL; must be an https URL',
      'GENERATION_KEYS and GENERATION_KEYS_FILE are both set: unset one',
      'GENERATION_KEYS_FILE cannot be read: ENOENT',
      'MEDIA_HOSTS lists no host: unset it to allow all hosts',
    ])
  })

  it.each(['PROVIDER_WEBHOOK_ALLOW', 'PROVIDER_REFERENCE_ALLOW'])(
    'refuses exceptions from the rules for URLs: %s',
    (name) => {
      expect(problemsOf({ ...production, [name]: 'http://127.0.0.1:3000' }, both, nothing)).toEqual([
        `${name} is for local use only: unset it in production`,
      ])
    },
  )
})

describe('the catalog', () => {
  const builtIn = path.resolve(import.meta.dirname, '../../src/provider/catalog/catalog.yaml')
  const catalogFile = async (change: (text: string) => string): Promise<string> => {
    const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-catalog-'))
    onTestFinished(() => fs.rm(folder, { recursive: true }))
    const file = path.join(folder, 'models.yaml')
    await fs.writeFile(file, change(await fs.readFile(builtIn, 'utf8')))
    return file
  }

  it('comes from the named file, or is the built-in one', async () => {
    const file = await catalogFile((text) => text.replace('slug: lyra-audio', 'slug: my-audio'))
    expect(provider({ PROVIDER_CATALOG: file }).catalogFile).toBe(file)
    expect([...provider({ PROVIDER_CATALOG: file }).catalog.keys()]).toContain('my-audio')
    expect([...provider({}).catalog.keys()]).toContain('lyra-audio')
  })

  it('that is broken or missing stops the start, each problem with its file and line', async () => {
    const file = await catalogFile((text) =>
      text.replace('engine: local-image\n', 'engine: none\n').replace('    name: Lyra Audio\n', ''),
    )
    expect(problemsOf({ PROVIDER_CATALOG: file })).toEqual([
      expect.stringMatching(`^PROVIDER_CATALOG ${file} models\\.aurora-image\\.engine: must be one of `),
      expect.stringMatching(`^PROVIDER_CATALOG ${file} models\\.lyra-audio\\.name: is missing$`),
    ])
    expect(problemsOf({ PROVIDER_CATALOG: '/nowhere/models.yaml' })).toEqual([
      'PROVIDER_CATALOG /nowhere/models.yaml cannot be read: ENOENT',
    ])
  })

  it('that names a missing token stops the start', async () => {
    const settings = 'engine: http\n    engine_settings: { url: http://127.0.0.1:9000, token_env: STUDIO_TOKEN }\n'
    const PROVIDER_CATALOG = await catalogFile((text) => text.replace('engine: local-image\n', settings))
    const problem =
      'models.aurora-image.engine_settings.token_env: the environment variable STUDIO_TOKEN contains no token: set it'
    expect(problemsOf({ PROVIDER_CATALOG })).toEqual([`PROVIDER_CATALOG ${problem}`])
    expect(provider({ PROVIDER_CATALOG, STUDIO_TOKEN: 'a-token' }).catalog.get('aurora-image')).toMatchObject({
      engine: 'http',
    })
  })
})

describe('a console that others can reach', () => {
  it.each(['0.0.0.0', '::', '10.0.0.1', 'console.test', '127.console.test'])('on %s needs a token', (host) => {
    expect(problemsOf({ INTERNAL_HOST: host }, ['receiver'])).toEqual([
      'INTERNAL_TOKEN is required when INTERNAL_HOST is not loopback',
    ])
    expect(problemsOf({ INTERNAL_HOST: host, INTERNAL_TOKEN: 'short' }, ['receiver'])).toEqual([
      'INTERNAL_TOKEN must have at least 32 characters',
    ])
    expect(problemsOf({ PROVIDER_CONSOLE_HOST: host }, ['provider'])).toEqual([
      'PROVIDER_CONSOLE_TOKEN is required when PROVIDER_CONSOLE_HOST is not loopback',
    ])
    expect(receiver({ INTERNAL_HOST: host, INTERNAL_TOKEN: 'x'.repeat(32) }).internalHost).toBe(host)
  })

  it.each(['127.0.0.1', '127.0.0.2', '::1', 'localhost'])('on %s needs no token', (host) => {
    expect(receiver({ INTERNAL_HOST: host }).internalToken).toBeUndefined()
    expect(provider({ PROVIDER_CONSOLE_HOST: host }).consoleToken).toBeUndefined()
  })
})

describe('settings in files', () => {
  async function fileOf(text: string): Promise<string> {
    const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-settings-'))
    onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
    await fs.writeFile(path.join(folder, 'setting'), text)
    return path.join(folder, 'setting')
  }
  const values: Record<string, [good: string, bad: string]> = {
    DATABASE_URL: ['postgres://u:hush@filed/x', 'hush://x'],
    INTERNAL_TOKEN: ['hush'.repeat(8), 'hush'],
    PROVIDER_DATABASE_URL: ['postgres://u:hush@filed/y', 'hush://x'],
    PROVIDER_SECRET_KEY: [secretKey, 'hush'],
    PROVIDER_CONSOLE_TOKEN: ['hush'.repeat(8), 'hush'],
  }
  const find = (env: ProcessEnvironment, name: string) => {
    const { databaseUrl, internalToken } = receiver(env)
    const { databaseUrl: ownUrl, secretKey: bytes, consoleToken } = provider(env)
    return {
      DATABASE_URL: databaseUrl,
      INTERNAL_TOKEN: internalToken,
      PROVIDER_DATABASE_URL: ownUrl,
      PROVIDER_SECRET_KEY: bytes.toString('base64'),
      PROVIDER_CONSOLE_TOKEN: consoleToken,
    }[name]
  }

  it.each(Object.entries(values))('%s_FILE is read without its final newline', async (name, [good]) => {
    for (const end of ['', '\n', '\r\n']) expect(find({ [`${name}_FILE`]: await fileOf(good + end) }, name)).toBe(good)
  })

  it.each(Object.entries(values))(
    '%s_FILE set beside its variable, unreadable, empty or with a wrong value is refused by name',
    async (name, [good, bad]) => {
      const file = `${name}_FILE`
      expect(problemsOf({ [name]: good, [file]: await fileOf(good) })).toEqual([
        `${name} and ${file} are both set: unset one`,
      ])
      expect(problemsOf({ [file]: '/nowhere/hush' })).toEqual([`${file} cannot be read: ENOENT`])
      expect(problemsOf({ [file]: await fileOf('\n') })).toEqual([`${file} names a file that is empty`])
      const problems = problemsOf({ [file]: await fileOf(bad) })
      expect(problems).toEqual([expect.stringMatching(new RegExp(`^${file} \\S`))])
      expect(problems.join()).not.toContain('hush')
    },
  )

  it('count as set: in production nothing is missing, and no server is embedded', async () => {
    const { DATABASE_URL, PROVIDER_SECRET_KEY, ...rest } = production
    const env = {
      ...rest,
      DATABASE_URL_FILE: await fileOf(`${DATABASE_URL}\n`),
      PROVIDER_SECRET_KEY_FILE: await fileOf(`${PROVIDER_SECRET_KEY}\n`),
    }
    expect(receiver(env, nothing).databaseUrl).toBe(DATABASE_URL)
    expect(provider(env, nothing).databaseUrl).toBe(DATABASE_URL)
    expect(needsEmbeddedPostgres({ DATABASE_URL_FILE: env.DATABASE_URL_FILE }, both)).toBe(false)
    expect(readDatabaseUrl(env, 'provider', undefined)).toBe(DATABASE_URL)
    expect(
      readDatabaseUrl({ ...env, PROVIDER_DATABASE_URL_FILE: await fileOf('postgres://own/x') }, 'provider', undefined),
    ).toBe('postgres://own/x')
    expect(readProviderSecretKey(env, undefined).toString('base64')).toBe(PROVIDER_SECRET_KEY)
    expect(() => readDatabaseUrl({ DATABASE_URL_FILE: '/nowhere' }, 'receiver', undefined)).toThrow(
      'DATABASE_URL_FILE cannot be read: ENOENT',
    )
  })
})

describe('a variable that is not a setting', () => {
  it.each([
    ['FETCH_RATE_PER_MINTE', 'FETCH_RATE_PER_MINUTE'],
    ['FETCH_RATE_PRE_MINUTE', 'FETCH_RATE_PER_MINUTE'],
    ['RETENTION_DAY', 'RETENTION_DAYS'],
    ['DATABASE_URI', 'DATABASE_URL'],
    ['DATABASE_URL_FIEL', 'DATABASE_URL_FILE'],
    ['PROVIDER_RATE_PER_KEYS', 'PROVIDER_RATE_PER_KEY'],
    ['LOG_LEVL', 'LOG_LEVEL'],
  ])('%s is refused as a misspelt %s by each program', (name, meant) => {
    for (const wanted of [['receiver'], ['provider']] satisfies Program[][])
      expect(problemsOf({ ...production, [name]: 'hush' }, wanted)).toEqual([
        `${name} is not a setting: did you mean ${meant}?`,
      ])
  })

  it('is ignored if it is empty, resembles no setting, or is set by Kubernetes for a service', () => {
    const services = [
      'PROVIDER',
      'PROVIDER_CONSOLE',
      'DATABASE',
      'INTERNAL',
      'MEDIA',
      'WEBHOOK',
      'GENERATION_API',
      'MEDIADOCK_INTERNAL',
    ]
    const links = services.flatMap((service) => [
      ...(['PROVIDER', 'PROVIDER_CONSOLE', 'INTERNAL'].includes(service) ? [] : [`${service}_PORT`]),
      ...[`SERVICE_HOST`, `SERVICE_PORT`, `SERVICE_PORT_HTTP`].map((name) => `${service}_${name}`),
      ...['', '_PROTO', '_PORT', '_ADDR'].map((part) => `${service}_PORT_4000_TCP${part}`),
    ])
    const others = [
      'DATABASE_HOST',
      'DATABASE_PASSWORD',
      'MEDIA_ROOT',
      'EXTERNAL_HOST',
      'HOST_1',
      'OTEL_EXPORTER_OTLP_HEADERS',
      'HOSTS',
    ]
    const env = Object.fromEntries([...links, ...others].map((name) => [name, 'tcp://10.0.0.1:4000']))
    expect(() => readConfig({ ...production, ...env, FETCH_RATE_PER_MINTE: '' }, both, nothing)).not.toThrow()
  })
})

describe('lists', () => {
  it('are split at commas, without blanks and empty items', () => {
    expect(receiver({ MEDIA_HOSTS: 'a.test, b.test,,c.test ' }).mediaHosts).toEqual(['a.test', 'b.test', 'c.test'])
    expect(provider({ PROVIDER_WEBHOOK_ALLOW: 'http://127.0.0.1:3000, http://localhost:3000' }).webhookAllow).toEqual([
      'http://127.0.0.1:3000',
      'http://localhost:3000',
    ])
  })
})

describe('keys', () => {
  const retired = { name: 'old', signing_secret: 'whsec_hush_old_secret', retired: true }

  it('may be several; a retired one needs no api_key, and then has no known environment', () => {
    const keys = parseKeys(
      JSON.stringify([
        key,
        { name: 'sandbox', api_key: 'service_test_hush', signing_secret: 'whsec_hush_of_sandbox' },
        retired,
        { ...retired, name: 'older', api_key: 'service_test_x', signing_secret: 'whsec_hush_older_secret' },
      ]),
    )
    expect(keys.all.map(({ name, environment, retired: gone }) => [name, environment, gone])).toEqual([
      ['live', 'live', false],
      ['sandbox', 'sandbox', false],
      ['old', undefined, true],
      ['older', 'sandbox', true],
    ])
    expect(keys.defaultSource.secrets).toHaveLength(4)
    expect(keys.byName.get('old')).toMatchObject({ signingSecret: 'whsec_hush_old_secret', apiKey: undefined })
  })

  it.each([
    ['no JSON', '[{"name":"hush"', 'is not valid JSON'],
    [
      'an object in place of the array',
      JSON.stringify(key),
      'contains an object. It must contain an array of keys, [{"name"',
    ],
    ['no key', '[]', 'contains no key. Add at least one'],
    ['no name', JSON.stringify([{ ...key, name: undefined }]), '[0].name '],
    ['an empty name', JSON.stringify([{ ...key, name: '' }]), '[0].name '],
    [
      'no signing_secret',
      JSON.stringify([key, { ...key, name: 'b', signing_secret: undefined }]),
      '[1].signing_secret is missing',
    ],
    [
      '15 bytes of signing_secret',
      JSON.stringify([{ ...key, signing_secret: 'whsec_hush_15ch' }]),
      '[0].signing_secret must have at least 16 bytes',
    ],
    [
      'fewer bytes that zero bytes fill up',
      JSON.stringify([{ ...key, signing_secret: 'whsec_hush'.padEnd(32, '\0') }]),
      '[0].signing_secret must have at least 16 bytes',
    ],
    [
      'an empty signing_secret',
      JSON.stringify([{ ...key, signing_secret: '' }]),
      '[0].signing_secret must have at least 16 bytes',
    ],
    [
      'no api_key in a key that is not retired',
      JSON.stringify([{ ...retired, retired: false }]),
      '[0] has no api_key. Only a retired key may omit it',
    ],
    ['retired in words', JSON.stringify([{ ...key, retired: 'hush' }]), '[0].retired must be a boolean, not a string'],
    [
      'two of one signing_secret',
      JSON.stringify([key, retired, { ...key, name: 'again' }]),
      '[2].signing_secret is the same as that of [0]: a delivery would not show which key signed it',
    ],
    [
      'two that sign alike, since HMAC adds zero bytes itself',
      JSON.stringify([key, { ...key, name: 'b', signing_secret: `${key.signing_secret}\0` }]),
      '[1].signing_secret is the same as that of [0]',
    ],
    [
      'two that sign alike, since no UTF-8 tells them apart',
      JSON.stringify(
        ['\ud800', '\ud801'].map((half) => ({ ...key, name: half, signing_secret: `whsec_hush_hush${half}` })),
      ),
      '[1].signing_secret is the same as that of [0]',
    ],
    [
      'two of one name',
      JSON.stringify([key, { ...key, signing_secret: 'whsec_hush_second' }]),
      'contains two keys of the same name',
    ],
  ])('%s: the message names the place and shows no value', (_what, text, place) => {
    const [problem = '', ...more] = problemsOf({ GENERATION_KEYS: text }, ['receiver'])
    expect(more).toEqual([])
    expect(problem).toMatch(/^GENERATION_KEYS /)
    expect(problem).toContain(place)
    expect(problem).not.toContain('hush')
  })

  it('come from a file', async () => {
    const file = await keysFile(JSON.stringify([{ ...key, name: 'filed' }]))
    const settings = receiver({ GENERATION_KEYS_FILE: file })
    expect(settings.keys.all.map(({ name }) => name)).toEqual(['filed'])
    expect(settings.keysFile).toBe(file)
    expect(settings.demoKeysFile).toBeUndefined()
  })

  it('of a laptop come from its file of demo keys, unless keys are set', () => {
    const laptop = { ...local, demoKeysFile: '/srv/.data/demo-keys.json' }
    expect(receiver({}, laptop).demoKeysFile).toBe(laptop.demoKeysFile)
    expect(receiver({ GENERATION_KEYS: JSON.stringify([key]) }, laptop).demoKeysFile).toBeUndefined()
    expect(receiver(production, laptop).demoKeysFile).toBeUndefined()
  })

  it('are refused if set both as a file and as a variable', async () => {
    const file = await keysFile(JSON.stringify([key]))
    expect(problemsOf({ GENERATION_KEYS_FILE: file, GENERATION_KEYS: JSON.stringify([key]) }, ['receiver'])).toEqual([
      'GENERATION_KEYS and GENERATION_KEYS_FILE are both set: unset one',
    ])
  })

  it('from a file that is not there, or broken, are a problem of GENERATION_KEYS_FILE', async () => {
    expect(problemsOf({ GENERATION_KEYS_FILE: '/nowhere/keys.json' }, ['receiver'])).toEqual([
      'GENERATION_KEYS_FILE cannot be read: ENOENT',
    ])
    const file = await keysFile('hush')
    expect(problemsOf({ GENERATION_KEYS_FILE: file }, ['receiver'])).toEqual([
      `GENERATION_KEYS_FILE (${file}) is not valid JSON`,
    ])
  })

  it('set by mistake in place of the file name do not appear in the message', () => {
    expect(problemsOf({ GENERATION_KEYS_FILE: JSON.stringify([key]) }, ['receiver']).join()).not.toContain('hush')
  })

  it('of other sources come from SOURCES_FILE; a problem there is named', async () => {
    const source = { name: 'mine', kind: 'luma', keys: [{ name: 'luma', api_key: 'luma-hush' }] }
    const file = await keysFile(JSON.stringify([source]))
    const { keys, sourcesFile } = receiver({ SOURCES_FILE: file, MEDIA_ARCHIVE: 'file:///srv/media' })
    expect(sourcesFile).toBe(file)
    expect(keys.sources.get('mine')?.archive).toEqual({ kind: 'file', root: '/srv/media' })
    expect(keys.all.map(({ name }) => name)).toEqual(['live', 'luma'])
    expect(problemsOf({ SOURCES_FILE: '/nowhere.json' }, ['receiver'])).toEqual(['SOURCES_FILE cannot be read: ENOENT'])
    const broken = await keysFile('{}')
    expect(problemsOf({ SOURCES_FILE: broken }, ['receiver'])).toEqual([
      `SOURCES_FILE (${broken}) contains an object. It must contain an array of sources, [{"name", "kind", "keys": […]}]`,
    ])
  })

  it('of other sources are enough in production, without the default source and its API', async () => {
    const { GENERATION_KEYS: _, GENERATION_API_URL: url, ...others } = production
    const luma = { name: 'mine', kind: 'luma', keys: [{ name: 'luma', api_key: 'luma-hush' }] }
    const SOURCES_FILE = await keysFile(JSON.stringify([luma]))
    const { keys, generationApiUrl } = receiver({ ...others, SOURCES_FILE }, nothing)
    expect([keys.all.map(({ name }) => name), generationApiUrl]).toEqual([['luma'], ''])
    expect(receiver({ ...production, SOURCES_FILE }, nothing).generationApiUrl).toBe(url)
    const empty = await keysFile('[]')
    expect(problemsOf({ ...others, SOURCES_FILE: empty }, ['receiver'], nothing)).toEqual([
      `SOURCES_FILE (${empty}) contains no source, and no key of the default source is configured`,
    ])
    const keysOnly = { ...others, SOURCES_FILE, GENERATION_KEYS: production['GENERATION_KEYS'] ?? '' }
    expect(problemsOf(keysOnly, ['receiver'], nothing)).toEqual(['GENERATION_API_URL is required'])
  })

  async function keysFile(text: string): Promise<string> {
    const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-keys-'))
    onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
    await fs.writeFile(path.join(folder, 'keys.json'), text)
    return path.join(folder, 'keys.json')
  }
})

describe('the embedded PostgreSQL', () => {
  it.each<[ProcessEnvironment, Program[], boolean]>([
    [{}, both, true],
    [{}, ['provider'], true],
    [{ DATABASE_URL: 'postgres://x/y' }, both, false],
    [{ DATABASE_URL: '' }, both, true],
    [{ PROVIDER_DATABASE_URL: 'postgres://x/y' }, both, true],
    [{ PROVIDER_DATABASE_URL: 'postgres://x/y' }, ['provider'], false],
    [{ PROVIDER_DATABASE_URL: 'postgres://x/y' }, ['receiver'], true],
  ])('%j for %j is needed: %s', (env, wanted, needed) => {
    expect(needsEmbeddedPostgres(env, wanted)).toBe(needed)
  })
})

describe('the command line’s database', () => {
  it("is the program’s own, else the shared one, else the running laptop's; without any: ConfigError", () => {
    const env = { DATABASE_URL: 'postgres://a/b', PROVIDER_DATABASE_URL: 'postgres://c/d' }
    expect(readDatabaseUrl(env, 'provider', undefined)).toBe('postgres://c/d')
    expect(readDatabaseUrl(env, 'receiver', undefined)).toBe('postgres://a/b')
    expect(readDatabaseUrl({}, 'receiver', 'postgres://e/f')).toBe('postgres://e/f')
    expect(() => readDatabaseUrl({}, 'receiver', undefined)).toThrow(ConfigError)
    expect(() => readDatabaseUrl({ DATABASE_URL: 'hush' }, 'receiver', 'postgres://e/f')).toThrow(ConfigError)
  })
})

describe('a start whose settings are wrong', () => {
  const main = path.resolve(import.meta.dirname, '../../src/main.ts')
  async function start(what: string, env: Record<string, string>) {
    const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-config-'))
    onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
    const program = startProcess(process.execPath, [main, what], { cwd: folder, env: { ...childEnv, ...env } })
    const { code } = await program.exit
    return { code, output: program.output(), left: await fs.readdir(folder) }
  }
  const missing: Record<string, string[]> = {
    receiver: ['DATABASE_URL', 'GENERATION_API_URL', 'GENERATION_KEYS or GENERATION_KEYS_FILE', 'WEBHOOK_PUBLIC_URL'],
    provider: ['PROVIDER_DATABASE_URL or DATABASE_URL', 'PROVIDER_SECRET_KEY'],
  }
  missing['all'] = Object.values(missing).flat()

  it.each(Object.entries(missing).slice(long ? 0 : -1))(
    '%s in production with nothing set: exit 78 and one message with every name',
    async (what, names) => {
      const { code, output, left } = await start(what, { NODE_ENV: 'production' })
      expect(code).toBe(78)
      const [head, ...lines] = output.trimEnd().split('\n')
      expect(head).toBe('mediadock: invalid settings:')
      expect(lines.sort()).toEqual(names.map((name) => `  ${name} is required`).sort())
      expect(left).toEqual([])
    },
  )

  it('malformed values, in production and on a laptop: exit 78, no secret in the message, nothing started', async () => {
    const wrong = {
      INTERNAL_TOKEN: 'hush',
      DATABASE_URL: 'hush://hush',
      GENERATION_KEYS: '[{"name":"hush"}]',
      PROVIDER_SECRET_KEY: 'hush',
      PORT: 'hush',
    }
    for (const env of [{ ...wrong, NODE_ENV: 'production' }, wrong]) {
      const { code, output, left } = await start('all', env)
      expect(code).toBe(78)
      for (const name of Object.keys(wrong)) expect(output).toMatch(new RegExp(`^  ${name} `, 'm'))
      expect(output).not.toContain('hush')
      expect(left).toEqual([])
    }
  })
})
