import fs from 'node:fs'
import net from 'node:net'
import express from 'express'
import { z } from 'zod'

/** The building blocks of a program's settings: each turns one environment variable into a typed value. */

/** Digits only: `Number` would take a blank for 0, and `0x10` and `1e3` for numbers that nobody meant. */
const wholeNumber = z.string().regex(/^-?\d+$/, 'must be a whole number').transform(Number)

export const port = wholeNumber.pipe(z.number().int().min(0).max(65_535))
export const positiveInt = wholeNumber.pipe(z.number().int().positive())
/** Connections per process; each program keeps some of them for one job. */
export const poolSize = wholeNumber.pipe(z.number().int().min(3).max(1000))
export const nonEmpty = z.string().min(1)
export const onOff = z.enum(['on', 'off']).transform((value) => value === 'on')
export const bool = z.enum(['true', 'false']).transform((value) => value === 'true')
export const httpUrl = z.url({ protocol: /^https?$/, error: 'must be an http or https URL' }).transform((url) => url.replace(/\/+$/, ''))
export const postgresUrl = z.string().refine(isPostgresUrl, 'must be a postgres:// URL')
export const commaSeparated = z.string().transform((text) => text.split(',').map((item) => item.trim()).filter(Boolean))
export const trustProxy = z
  .string()
  .transform((text) => (/^\d+$/.test(text) ? Number(text) : text))
  .refine(isTrustProxy, 'must be a number of proxies, or addresses and subnets with commas between them')
export const logLevel = z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'])

/** Several hosts with commas between them are one URL to Postgres, though not to URL itself. */
function isPostgresUrl(text: string): boolean {
  const [, scheme, credentials = '', hosts = '', rest = ''] = /^(postgres(?:ql)?:\/\/)([^/?#]*@)?([^/?#]*)(.*)$/s.exec(text) ?? []
  return scheme !== undefined && hosts.split(',').every((host) => URL.canParse(`${scheme}${credentials}${host}${rest}`))
}

/** Express alone knows what it takes, and says so by throwing. */
function isTrustProxy(value: string | number): boolean {
  try {
    express().set('trust proxy', value)
    return true
  } catch {
    return false
  }
}

export type Environment = Record<string, string | undefined>

/** One wrong setting: its name and what is wrong with it, never its value. */
export type Problem = { name: string; message: string }

/**
 * Reads settings one by one and gathers every problem instead of stopping at the first.
 * An empty variable counts as absent, as in a compose file.
 */
export function settingsReader(env: Environment) {
  const problems: Problem[] = []

  const optional = <T>(name: string, schema: z.ZodType<T>): T | undefined => {
    const raw = env[name]
    if (raw === undefined || raw === '') return undefined
    const parsed = schema.safeParse(raw)
    if (parsed.success) return parsed.data
    problems.push({ name, message: parsed.error.issues.map((issue) => issue.message).join('; ') })
    return undefined
  }
  return {
    problems,
    optional,
    withDefault: <T>(name: string, schema: z.ZodType<T>, fallback: T): T => optional(name, schema) ?? fallback,
    /** For what must be given: the problem is noted, and the fallback only keeps the type whole. */
    required: <T>(name: string, schema: z.ZodType<T>, fallback: T): T => {
      if (env[name] === undefined || env[name] === '') problems.push({ name, message: 'is required' })
      return optional(name, schema) ?? fallback
    },
  }
}

export type SettingsReader = ReturnType<typeof settingsReader>

const loopbackHosts = new Set(['127.0.0.1', '::1', 'localhost'])

export function isLoopback(host: string): boolean {
  // An address only: `127.example.com` is a name, and its owner says where it leads.
  return loopbackHosts.has(host) || (net.isIPv4(host) && host.startsWith('127.'))
}

/** The text of a file, or a problem under the name of the setting that points to it. */
export function readFileSetting(reader: SettingsReader, name: string, file: string): string | undefined {
  try {
    return fs.readFileSync(file, 'utf8')
  } catch (error) {
    // The code alone: the message would quote the value, which by mistake may be the secrets themselves.
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'unknown error'
    reader.problems.push({ name, message: `cannot be read: ${code}` })
    return undefined
  }
}
