import { parseArgs } from 'node:util'
import type { ProcessEnvironment } from '../platform/settings.ts'

/** The command line is wrong. The message explains how. Exit code 2. */
export class UsageError extends Error {
  override name = 'UsageError'
  code = 'usage' as const
}

/** A command's options without `--help`, in the form of `parseArgs`. */
export type CommandOptions = Readonly<Record<string, { type: 'string' | 'boolean' }>>

export type Command = {
  /** The text of `--help`: forms, options, examples. */
  help: string
  /** `help` must show each option. */
  options: CommandOptions
  run: (args: string[], env: ProcessEnvironment) => Promise<number>
}

type Parsed<O extends CommandOptions> = ReturnType<typeof parseArgs<{ options: O; allowPositionals: true }>>
type Definition<O extends CommandOptions> = Pick<Command, 'help'> & {
  options: O
  /** True if the command takes words beside its options. */
  takesWords?: boolean
  run: (options: Parsed<O>['values'], words: string[], env: ProcessEnvironment) => Promise<number>
}

/** Creates a command that parses its arguments before it runs. Reads `--request_id` like `--request-id`. */
export function defineCommand<const O extends CommandOptions>({ takesWords, run, ...rest }: Definition<O>): Command {
  return {
    ...rest,
    run: async (args, env) => {
      const { values, positionals } = parseArgs({
        args: args.map((arg) => arg.replace(/^--[\w-]+/, toOption)),
        allowPositionals: takesWords === true,
        options: rest.options,
      })
      return run(values, positionals, env)
    },
  }
}

/** Converts the name of a filter at the start of `text` to its form as an option, with dashes. */
export function toOption(text: string): string {
  return text.replace(/^[\w-]+/, (name) => name.replaceAll('_', '-'))
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

/** Prints rows as aligned columns. The terminal wraps lines that are wider, so that ids can be copied whole. */
export function printTable(headings: readonly string[], rows: readonly (readonly string[])[]): void {
  const widths = headings.map((heading, at) => Math.max(heading.length, ...rows.map((row) => (row[at] ?? '').length)))
  for (const cells of [headings, ...rows]) {
    const padded = cells.map((cell, at) => (at === cells.length - 1 ? cell : cell.padEnd(widths[at] ?? 0)))
    process.stdout.write(`${padded.join('  ')}\n`)
  }
}
