import type { ProcessEnvironment } from '../platform/settings.ts'

/** The command line was used wrongly. The message says how. Exit code 2. */
export class UsageError extends Error {
  override name = 'UsageError'
  code = 'usage' as const
}

/** A command's options without `--help`, in the form of `parseArgs`. */
export type CommandOptions = Readonly<Record<string, { type: 'string' | 'boolean' }>>

export type Command = {
  /** The text of `--help`: forms, options, examples. */
  help: string
  /** The options that `run` parses. `help` must show each of them. */
  options: CommandOptions
  /** Resolves to the exit code. */
  run: (args: string[], env: ProcessEnvironment) => Promise<number>
}

/** A command's entry in the list of all commands. Only the command that runs is loaded. */
export type Entry = { summary: string; load: () => Promise<{ command: Command }> }

// JSON escapes only ASCII control characters, but terminals obey others too.
const steering = /[^\P{C}\n]|[\u2028\u2029]/gu

/** Prints a value as one line of JSON. Escapes all control characters, so that none steers a terminal. */
export function printJson(value: unknown): void {
  const escaped = JSON.stringify(value).replaceAll(steering, (text) =>
    text
      .split('')
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
      .join(''),
  )
  process.stdout.write(`${escaped}\n`)
}

/** Replaces control characters, so that none steers a terminal. */
export function printable(text: string): string {
  return text.replaceAll(steering, '·')
}

export function required(value: string | undefined, name: string): string {
  if (value === undefined || value === '') throw new UsageError(`${name} is missing`)
  return value
}
