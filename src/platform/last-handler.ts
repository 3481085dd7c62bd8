import type { Logger } from './logger.ts'

/** Beyond every grace: a process that was to stop and could not is ended. */
const endWithinMs = 60_000

/**
 * What nothing else has caught is a fault of ours. It is one line of the
 * log, which shows no values, and the process stops in good order, since nobody
 * knows what the fault has left half done; whoever runs it starts it again.
 */
export function stopOnUncaught({ logger, stop }: { logger: Logger; stop: (reason: string) => void }): void {
  let isStopping = false
  const onFault = (error: unknown, origin: string) => {
    logger.fatal({ err: error, origin }, 'an error that nothing has caught: stopping')
    if (isStopping) return
    isStopping = true
    setTimeout(() => process.exit(1), endWithinMs).unref()
    stop('an error that nothing has caught; the log has it')
  }
  process.on('uncaughtException', (error, origin) => onFault(error, origin))
  process.on('unhandledRejection', (reason) => onFault(reason, 'unhandledRejection'))
}
