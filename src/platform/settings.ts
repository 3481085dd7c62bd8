import fs from 'node:fs'
import { createRequire } from 'node:module'
import net from 'node:net'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { z } from 'zod'
import { errorCode, plainWords } from './plain-words.ts'
import { parsePostgresUrl, PostgresUrlError } from './postgres/url.ts'

/** The building blocks of a program's settings: each turns one environment variable into a typed value. */

/** Digits only. `Number` also accepts blanks, `0x10` and `1e3`. */
const wholeNumber = z
  .string()
  .regex(/^-?\d+$/, 'must be a whole number')
  .transform(Number)

export const port = wholeNumber.pipe(z.number().int().min(0).max(65_535))
export const positiveInt = wholeNumber.pipe(z.number().int().positive())
/** Connections per process. Each program reserves some of them for one kind of work. */
export const poolSize = wholeNumber.pipe(z.number().int().min(3).max(1000))
export const nonEmpty = z.string().min(1)
export const absolutePath = z.string().refine((text) => path.isAbsolute(text), 'must be an absolute path')
export const onOff = z.enum(['on', 'off']).transform((value) => value === 'on')
export const bool = z.enum(['true', 'false']).transform((value) => value === 'true')
/** The address or host name of a listener, without scheme and port. */
export const listenHost = z
  .string()
  .refine(
    (host) => net.isIP(host) > 0 || hostName.test(host),
    'must be an address or a host name, without scheme and port',
  )
export const httpUrl = z
  .url({ protocol: /^https?$/, error: 'must be an http or https URL' })
  .transform((url) => url.replace(/\/+$/, ''))
/** The base URL of an API. Paths are appended to it, so it must not contain a query or a fragment. */
export const apiUrl = httpUrl.superRefine((text, context) => {
  const url = new URL(text)
  const add = (message: string) => context.addIssue({ code: 'custom', message })
  if (url.username !== '' || url.password !== '') add('must not contain credentials')
  if (text.includes('?') || text.includes('#')) add('must not contain a query or a fragment')
  if (url.pathname.replace(/\/+$/, '').endsWith('/v1')) add('must not end in /v1: it is appended to the URL')
})
export const postgresUrl = z
  .string()
  .refine(isPostgresUrl, { error: 'must be a postgres:// URL', abort: true })
  .superRefine((text, context) => {
    try {
      parsePostgresUrl(text)
    } catch (error) {
      if (!(error instanceof PostgresUrlError)) throw error
      context.addIssue({ code: 'custom', message: error.message })
    }
  })
export const commaSeparated = z.string().transform((text) =>
  text
    .split(',')
    .map((item) => item.trim())
    .filter(Boolean),
)
export const mediaHosts = commaSeparated
  .refine((hosts) => hosts.length > 0, 'lists no host: unset it to allow all hosts')
  .refine(
    (hosts) => hosts.every(isMediaHost),
    'must be comma-separated hosts like media.example.com, without scheme or path',
  )
  .transform((hosts) => hosts.map((host) => host.toLowerCase()))
/** Where files are kept: a folder, or a bucket and the prefix of its object names. */
export const filesPlace = z.string().transform((text, context) => {
  const place = parsePlace(text)
  if (place === undefined)
    context.addIssue({ code: 'custom', message: 'must be file:///a/folder or s3://bucket/prefix' })
  return place ?? z.NEVER
})
export const trustProxy = z
  .string()
  .transform((text) => (/^\d+$/.test(text) ? Number(text) : text))
  .refine(isTrustProxy, 'must be a number of proxies, or comma-separated addresses and subnets')
export const logLevel = z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'])

/** Postgres accepts several comma-separated hosts in one URL. `URL` does not, so each host is checked alone. */
function isPostgresUrl(text: string): boolean {
  const [, scheme, credentials = '', hosts = '', rest = ''] =
    /^(postgres(?:ql)?:\/\/)([^/?#]*@)?([^/?#]*)(.*)$/s.exec(text) ?? []
  return scheme !== undefined && hosts.split(',').every((host) => URL.canParse(`${scheme}${credentials}${host}${rest}`))
}

const require = createRequire(import.meta.url)

/** Asks Express, which throws for an invalid value. Loaded on use, because it would slow down every command. */
function isTrustProxy(value: string | number): boolean {
  const express: typeof import('express') = require('express')
  try {
    express().set('trust proxy', value)
    return true
  } catch {
    return false
  }
}

const hostName =
  /^(?=.{1,253}$)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.?$/i

export type FilesPlace = { kind: 'file'; root: string } | { kind: 's3'; bucket: string; prefix: string }

function parsePlace(text: string): FilesPlace | undefined {
  const [, bucket, prefix = ''] = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/([\w./-]*))?$/.exec(text) ?? []
  if (bucket !== undefined) return { kind: 's3', bucket, prefix: prefix.replace(/\/+$/, '') }
  // `fileURLToPath` throws for an escaped slash, and on Windows for an escaped backslash.
  if (!/^file:\/\/\/[^?#]+$/.test(text) || /%2f|%5c/i.test(text) || !URL.canParse(text)) return undefined
  return { kind: 'file', root: fileURLToPath(text).replace(/(?<=.)[\\/]+$/, '') }
}

/** Accepts the host part of a media link: a name or an address, with a port unless it is the scheme's default. */
function isMediaHost(text: string): boolean {
  const [, name = '', port] = /^(\[[^\]]+\]|[^:]*)(?::(\d{1,5}))?$/.exec(text) ?? []
  return (
    (hostName.test(name) || net.isIPv6(name.replace(/^\[|\]$/g, ''))) && (port === undefined || Number(port) <= 65_535)
  )
}

export type ProcessEnvironment = Record<string, string | undefined>

/** One wrong setting: its name and what is wrong with it, never its value. */
export type SettingProblem = { name: string; message: string }

/** Settings that can also be read from a file, named by `<name>_FILE`. This keeps secrets out of the environment. */
const fileSettings = new Set([
  'DATABASE_URL',
  'INTERNAL_TOKEN',
  'PROVIDER_DATABASE_URL',
  'PROVIDER_SECRET_KEY',
  'PROVIDER_CONSOLE_TOKEN',
])

/** True if a setting is set, directly or as a file. */
export function isGiven(env: ProcessEnvironment, name: string): boolean {
  return Boolean(env[name]) || (fileSettings.has(name) && Boolean(env[`${name}_FILE`]))
}

/** Returns the environment with a new value for a setting, and without its file. */
export function withSetting(env: ProcessEnvironment, name: string, value: string | undefined): ProcessEnvironment {
  return { ...env, [name]: value, [`${name}_FILE`]: undefined }
}

/**
 * Reads settings one by one and collects every problem instead of stopping at the first. An empty variable counts as
 * not set, as in a compose file.
 */
export function settingsReader(env: ProcessEnvironment) {
  const problems: SettingProblem[] = []

  /** The text of a setting, and the variable it was read from. */
  const read = (name: string): { from: string; raw: string } | undefined => {
    const [raw, fileName] = [env[name], `${name}_FILE`]
    const file = fileSettings.has(name) ? env[fileName] : undefined
    if (!file) return raw === undefined || raw === '' ? undefined : { from: name, raw }
    if (raw) problems.push({ name: `${name} and ${fileName}`, message: 'are both set: unset one' })
    try {
      const text = fs.readFileSync(file, 'utf8').replace(/\r?\n$/, '')
      if (text !== '') return { from: fileName, raw: text }
      problems.push({ name: fileName, message: 'names a file that is empty' })
    } catch (error) {
      problems.push({ name: fileName, message: `cannot be read: ${errorCode(error)}` })
    }
    return undefined
  }

  const optional = <T>(name: string, schema: z.ZodType<T>): T | undefined => {
    const given = read(name)
    if (given === undefined) return undefined
    const parsed = schema.safeParse(given.raw, plainWords)
    if (parsed.success) return parsed.data
    problems.push({ name: given.from, message: parsed.error.issues.map((issue) => issue.message).join('; ') })
    return undefined
  }
  return {
    problems,
    optional,
    withDefault: <T>(name: string, schema: z.ZodType<T>, fallback: T): T => optional(name, schema) ?? fallback,
    /** Reads a required setting. A missing one is recorded as a problem, and the fallback only satisfies the type. */
    required: <T>(name: string, schema: z.ZodType<T>, fallback: T): T => {
      if (!isGiven(env, name)) problems.push({ name, message: 'is required' })
      return optional(name, schema) ?? fallback
    },
  }
}

export type SettingsReader = ReturnType<typeof settingsReader>

const loopbackHosts = new Set(['127.0.0.1', '::1', 'localhost'])

export function isLoopback(host: string): boolean {
  // `127.example.com` is a name that can resolve to any address.
  return loopbackHosts.has(host) || (net.isIPv4(host) && host.startsWith('127.'))
}

const drainSeconds = { default: 5, shareOfGrace: 1 / 5 }

/** Reads the settings that both programs share: keep-alive of connections and shutdown. */
export function readConnectionSettings({ withDefault, optional, problems }: SettingsReader) {
  const shutdownGraceSeconds = withDefault('SHUTDOWN_GRACE_SECONDS', positiveInt, 25)
  const given = optional('DRAIN_SECONDS', wholeNumber.pipe(z.number().int().min(0)))
  if (given !== undefined && given >= shutdownGraceSeconds)
    problems.push({ name: 'DRAIN_SECONDS', message: 'must be less than SHUTDOWN_GRACE_SECONDS, which includes it' })
  return {
    shutdownGraceSeconds,
    drainSeconds: given ?? Math.min(drainSeconds.default, shutdownGraceSeconds * drainSeconds.shareOfGrace),
    keepAliveSeconds: withDefault('KEEP_ALIVE_SECONDS', wholeNumber.pipe(z.number().int().min(1).max(86_400)), 75),
  }
}

/** Returns the text of a file, or records a problem for the setting that names the file. */
export function readFileSetting(reader: SettingsReader, name: string, file: string): string | undefined {
  try {
    return fs.readFileSync(file, 'utf8')
  } catch (error) {
    reader.problems.push({ name, message: `cannot be read: ${errorCode(error)}` })
    return undefined
  }
}
