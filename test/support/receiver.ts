import { Router } from 'express'
import { createLogger, type Logger } from '../../src/platform/logger.ts'
import { settingsReader } from '../../src/platform/settings.ts'
import { internalRouter } from '../../src/receiver/console/router.ts'
import type { Keys } from '../../src/receiver/domain/keys.ts'
import { startReceiver, type ReceiverDeps } from '../../src/receiver/program.ts'
import { readReceiverSettings, type ReceiverSettings } from '../../src/receiver/settings.ts'
import { slices } from '../../src/receiver/slices.ts'
import { parseKeys } from '../../src/receiver/sources/keys.ts'

export const liveKey = { name: 'live', api_key: 'service_live_aaaaaaaaaaaaaaaa', signing_secret: 'whsec_live_secret' }
export const sandboxKey = {
  name: 'sandbox',
  api_key: 'service_test_bbbbbbbbbbbbbbbb',
  signing_secret: 'whsec_sandbox_secret',
}

export type TestReceiver = {
  webhookUrl: string
  internalUrl: string
  deps: ReceiverDeps
  setNow: (now: Date | undefined) => void
  /** As SIGHUP does. */
  setKeys: (keys: Keys) => void
  stop: () => Promise<void>
}

export type TestReceiverOptions = {
  databaseUrl: string
  providerUrl?: string
  settings?: Partial<ReceiverSettings>
  logLevel?: string
  logger?: Logger
  /** True if it also runs the poller. */
  followsUp?: boolean
}

/** Settings of a laptop on free ports, with a reconciler that runs only when a test starts it. */
export function testSettings({ databaseUrl, providerUrl, settings = {} }: TestReceiverOptions): ReceiverSettings {
  const reader = settingsReader({
    DATABASE_URL: databaseUrl,
    GENERATION_API_URL: providerUrl ?? 'http://127.0.0.1:9',
    GENERATION_KEYS: JSON.stringify([liveKey, sandboxKey]),
    RECONCILE_CRON: '0 0 1 1 *',
    FETCH_RATE_PER_MINUTE: '100000',
  })
  const read = readReceiverSettings(reader, { production: false, local: { databaseUrl, keys: undefined } })
  return { ...read, host: '127.0.0.1', port: 0, internalPort: 0, migrateOnStart: false, ...settings }
}

/** A whole receiver on real sockets; stopped with the test, or by the caller. */
export async function startTestReceiver(options: TestReceiverOptions): Promise<TestReceiver> {
  let now: Date | undefined
  let deps: ReceiverDeps | undefined
  let setKeys: (keys: Keys) => void = () => {}
  const pages = await Promise.all(slices.map((slice) => slice.internal()))
  const program = await startReceiver({
    slices,
    settings: testSettings(options),
    logger: options.logger ?? createLogger(options.logLevel ?? 'silent'),
    clock: () => now ?? new Date(),
    followsUp: options.followsUp ?? false,
    asksForAccounts: false,
    onKeysReload: (replace) => {
      setKeys = replace
    },
    internal: (given) => {
      deps = given
      return Router().use(internalRouter(given, pages))
    },
  })
  if (!deps) throw new Error('the receiver started without its internal listener')
  const { webhooks, console: internal } = program.urls
  if (!webhooks || !internal) throw new Error('the receiver started without its listeners')
  return {
    webhookUrl: webhooks,
    internalUrl: internal,
    deps,
    setNow: (at) => {
      now = at
    },
    setKeys,
    stop: () => program.stop(2000),
  }
}

/** The source of `POST /webhooks`. */
export const defaultSource = parseKeys(JSON.stringify([liveKey, sandboxKey])).defaultSource

export function keysOf(...keys: object[]) {
  return parseKeys(JSON.stringify(keys))
}
