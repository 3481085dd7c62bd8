import { pino } from 'pino'

/** A logger whose lines the test reads. */
export function watchedLogger() {
  const lines: string[] = []
  return { logger: pino({ level: 'info' }, { write: (line: string) => void lines.push(line) }), lines: () => lines }
}
