import fs from 'node:fs'
import { z } from 'zod'

/** The building blocks of a program's settings: each turns one environment variable into a typed value. */

export const port = z.coerce.number().int().min(0).max(65_535)
export const positiveInt = z.coerce.number().int().positive()
export const nonEmpty = z.string().min(1)
export const onOff = z.enum(['on', 'off']).transform((value) => value === 'on')
export const bool = z.enum(['true', 'false']).transform((value) => value === 'true')
export const httpUrl = z.url({ protocol: /^https?$/, error: 'must be an http or https URL' }).transform((url) => url.replace(/\/+$/, ''))
export const postgresUrl = z.string().regex(/^postgres(ql)?:\/\//, 'must be a postgres:// URL')
export const commaSeparated = z.string().transform((text) => text.split(',').map((item) => item.trim()).filter(Boolean))
export const logLevel = z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'])

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
  return loopbackHosts.has(host) || host.startsWith('127.')
}

/** The text of a file, or a problem under the name of the setting that points to it. */
export function readFileSetting(reader: SettingsReader, name: string, file: string): string | undefined {
  try {
    return fs.readFileSync(file, 'utf8')
  } catch (error) {
    reader.problems.push({ name, message: `cannot be read: ${error instanceof Error ? error.message : String(error)}` })
    return undefined
  }
}
