import type { Logger } from './logger.ts'

/** Sends node-cron's messages to our logger. By default, node-cron writes to stdout. */
export function cronLogger(logger: Logger) {
  const say = (level: 'debug' | 'info' | 'warn' | 'error') => (message: string | Error, error?: Error) =>
    logger[level]({ err: error ?? (message instanceof Error ? message : undefined) }, String(message))
  return { debug: say('debug'), info: say('debug'), warn: say('info'), error: say('error') }
}
