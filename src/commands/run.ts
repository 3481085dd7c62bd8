import { ConfigError } from '../config/config.ts'
import { failureWords } from '../platform/postgres/words.ts'
import { version } from '../platform/release.ts'
import type { ProcessEnvironment } from '../platform/settings.ts'
import { NoDatabaseError } from './database.ts'
import { commands, usage } from './index.ts'
import { printable, UsageError } from './usage.ts'

/** Runs one command. Returns its exit code: 0 done, 1 failed, 2 usage, 78 configuration. */
export async function runCommand(argv: readonly string[], env: ProcessEnvironment): Promise<number> {
  const [name, ...args] = argv
  if (name === undefined || name === 'help' || name === '--help' || name === '-h') {
    process.stdout.write(usage())
    return name === undefined ? 2 : 0
  }
  if (name === '--version' || name === '-v') {
    process.stdout.write(`${version}\n`)
    return 0
  }
  try {
    const entry = commands[name]
    if (!entry) throw new UsageError(`unknown command "${name}": mediadock --help lists the commands`)
    const { command } = await entry.load()
    if (args.includes('--help') || args.includes('-h')) {
      process.stdout.write(`${command.help.trim()}\n`)
      return 0
    }
    return await command.run(args, env)
  } catch (error) {
    process.stderr.write(`mediadock: ${printable(oneLine(error))}\n`)
    const isUnparsed = error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS')
    if (error instanceof UsageError || isUnparsed) return 2
    return error instanceof ConfigError || error instanceof NoDatabaseError ? 78 : 1
  }
}

function oneLine(error: unknown): string {
  if (error instanceof ConfigError) return error.message
  // `fetch failed` alone says nothing.
  const cause = error instanceof TypeError && error.cause instanceof Error ? error.cause : undefined
  const words =
    cause && error instanceof Error ? `${error.message}: ${cause.message || cause.name}` : failureWords(error)
  return words.replaceAll(/\s*\n\s*/g, ' ')
}
