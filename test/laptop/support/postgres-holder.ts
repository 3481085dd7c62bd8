import { startEmbeddedPostgres } from '../../../src/laptop/embedded-postgres.ts'
import { createLogger } from '../../../src/platform/logger.ts'

// A process that runs the embedded PostgreSQL on a folder until it is ordered to stop on stdin, or killed.
const [dataDir = ''] = process.argv.slice(2)
process.stdout.write('starting\n')
const server = await startEmbeddedPostgres({ dataDir, logger: createLogger('warn') })
process.once('SIGTERM', () => void server.stop().then(() => process.exit(0)))
// Exits without stopping PostgreSQL, as after an unexpected error.
process.once('SIGUSR2', () => process.exit(3))
process.stdout.write(`up as ${process.getuid?.()} at ${server.url}\n`)
setInterval(() => {}, 60_000)
