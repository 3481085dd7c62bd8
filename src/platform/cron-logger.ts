import type { Logger } from './logger.ts'

/** What node-cron has to say goes where everything goes; by itself it writes lines of its own to stdout. */
export function cronLogger(logger: Logger) {
  const say = (level: 'debug' | 'info' | 'warn' | 'error') => (message: string | Error, error?: Error) =>
    logger[level]({ err: error ?? (message instanceof Error ? message : undefined) }, String(message))
  return { debug: say('debug'), info: say('debug'), warn: say('info'), error: say('error') }
}
