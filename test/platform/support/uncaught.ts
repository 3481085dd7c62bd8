import { createServer } from 'node:http'
import { stopOnUncaught } from '../../../src/platform/last-handler.ts'
import { createLogger } from '../../../src/platform/logger.ts'

// A program that meets what nothing catches, twice, and ends as it should.
const server = createServer().listen(0, '127.0.0.1')
stopOnUncaught({
  logger: createLogger('info'),
  stop: (reason) => {
    server.close(() => {
      process.stderr.write(`stopped: ${reason}\n`)
      process.exit(1)
    })
  },
})
const failed = (text: string) => Object.assign(new Error(text), { query: 'select $1', parameters: ['whsec_secret'] })
const fault = process.argv[2]
if (fault === 'rejection') {
  void Promise.reject(failed('not awaited'))
  void Promise.reject(failed('nor for this'))
} else {
  setImmediate(() => {
    throw failed('not caught')
  })
}
