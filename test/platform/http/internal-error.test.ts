import { once } from 'node:events'
import http from 'node:http'
import express from 'express'
import { expect, it, onTestFinished } from 'vitest'
import { errorHandler } from '../../../src/platform/http/http.ts'
import { watchedLogger } from '../support/watched-logger.ts'

it('an unexpected error is answered 500 without details, and is logged with its stack', async () => {
  const { logger, lines } = watchedLogger()
  const app = express()
  app.get('/broken', () => {
    throw new TypeError('a bug of ours')
  })
  app.use(errorHandler(logger))
  const server = http.createServer(app)
  await once(server.listen(0, '127.0.0.1'), 'listening')
  onTestFinished(() => void server.close())
  const address = server.address()
  const response = await fetch(`http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}/broken`)
  expect([response.status, await response.json()]).toEqual([
    500,
    {
      error: {
        type: 'api_error',
        code: 'internal_error',
        message: 'something failed on our side; the log has the details',
      },
    },
  ])
  expect(lines().map((line) => JSON.parse(line))).toMatchObject([
    {
      level: 50,
      method: 'GET',
      path: '/broken',
      err: { type: 'TypeError', stack: expect.stringContaining('internal-error.test.ts') },
    },
  ])
})
