import type { Logger } from './logger.ts'

/**
 * Logs an uncaught error, then stops the process in good order. The state after such an error is unknown, so the
 * supervisor must restart the process.
 */
export function stopOnUncaught({ logger, stop }: { logger: Logger; stop: (reason: string) => void }): void {
  let isStopping = false
  const onFault = (error: unknown, origin: string) => {
    logger.fatal({ err: error, origin }, 'uncaught error: stopping')
    if (isStopping) return
    isStopping = true
    // Ends a process that has not stopped within a minute.
    setTimeout(() => process.exit(1), 60_000).unref()
    stop('uncaught error: see the log')
  }
  process.on('uncaughtException', (error, origin) => onFault(error, origin))
  process.on('unhandledRejection', (reason) => onFault(reason, 'unhandledRejection'))
}
