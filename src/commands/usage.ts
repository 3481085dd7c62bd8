import type { ProcessEnvironment } from '../platform/settings.ts'

/** The command was not written as it must be; the message says how. Exit code 2. */
export class UsageError extends Error {
  override name = 'UsageError'
  code = 'usage' as const
}

/** What a command takes besides `--help`, as `parseArgs` wants it; `values` where only these are meant. */
export type CommandOptions = Readonly<Record<string, { type: 'string' | 'boolean'; values?: readonly string[] }>>

export type Command = {
  /** What `--help` prints: forms, options, examples. */
  help: string
  /** The same that `run` parses by: what a shell completes cannot go stale. */
  options: CommandOptions
  /** What its words may be, where that is known: one or several each, like `keys list`. */
  words?: readonly string[]
  /** Answers the exit code. */
  run: (args: string[], env: ProcessEnvironment) => Promise<number>
}

/** A command in the list of all; only the one that is run is loaded. */
export type Entry = { summary: string; load: () => Promise<Command> }

// JSON itself escapes only the controls of ASCII: a terminal obeys others too.
const steering = /[^\P{C}\n]|[\u2028\u2029]/gu

/** One line of JSON in which nothing steers a terminal; it reads as the same value. */
export function printJson(value: unknown): void {
  const escaped = JSON.stringify(value).replaceAll(steering, (text) =>
    text
      .split('')
      .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
      .join(''),
  )
  process.stdout.write(`${escaped}\n`)
}

/** A text in which nothing steers a terminal. */
export function printable(text: string): string {
  return text.replaceAll(steering, '·')
}

export function required(value: string | undefined, name: string): string {
  if (value === undefined || value === '') throw new UsageError(`${name} is missing`)
  return value
}
