import fs from 'node:fs'
import type { EngineChoice } from '../domain/engine-choice.ts'

/** Looks a variable up by its name. */
export type ReadVariable = (name: string) => string | undefined

/**
 * Reads the bearer token of an engine from the environment variable or file in its settings. A file is read for each
 * job, so that a new token needs no restart. Throws if the token is missing. The message never quotes the token.
 */
export function readEngineToken(
  { settings }: Pick<EngineChoice, 'settings'>,
  readVariable: ReadVariable = (name) => process.env[name],
): string | undefined {
  const { token_env: variable, token_file: file } = settings
  if (typeof variable === 'string')
    return checked(readVariable(variable), `token_env: the environment variable ${variable}`)
  if (typeof file === 'string') return checked(read(file), `token_file: the file ${file}`)
  return undefined
}

function checked(text: string | undefined, where: string): string {
  const token = text?.trim()
  if (!token) throw new Error(`${where} contains no token: set it`)
  if (!/^[\x21-\x7e]+$/.test(token))
    throw new Error(`${where} contains a token with characters that are invalid in a header: correct it`)
  return token
}

function read(file: string): string {
  try {
    return fs.readFileSync(file, 'utf8')
  } catch (cause) {
    const code = cause instanceof Error && 'code' in cause ? String(cause.code) : 'unknown error'
    throw new Error(`token_file: the file ${file} cannot be read (${code})`, { cause })
  }
}
