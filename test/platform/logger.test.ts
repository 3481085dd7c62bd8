import { execFile } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { childEnv } from '../support/child-env.ts'
import { createTestDatabase } from '../support/database.ts'

let output: string
let lines: Record<string, unknown>[]

beforeAll(async () => {
  const database = await createTestDatabase()
  const script = path.join(import.meta.dirname, 'support/log-lines.ts')
  const { stdout, stderr } = await promisify(execFile)(process.execPath, [script], {
    env: { ...childEnv, DATABASE_URL: database.url },
  })
  await database.drop()
  expect(stderr).toBe('')
  output = stdout
  lines = output
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
})

const lineOf = (message: string, at = 0) =>
  lines.filter(({ msg }) => msg === message)[at] ?? expect.fail(`no line "${message}"`)

describe('the log', () => {
  it('writes one JSON object per line, with level, time and message', () => {
    expect(lines.length).toBeGreaterThan(20)
    for (const line of lines)
      expect(line).toMatchObject({
        level: expect.stringMatching(/^(info|error)$/),
        time: expect.stringMatching(/^\d{4}-.*Z$/),
      })
  })

  it('contains no secret and no query parameter in any line', () => {
    expect(output.split('\n').filter((line) => line.includes('HUSH'))).toEqual([])
    expect(output).not.toContain(Buffer.from('HUSH').toJSON().data.join(','))
  })

  it('escapes control characters without losing them', () => {
    expect(output).not.toMatch(/[\u007f-\u009f]/)
    expect(lineOf('what moves a cursor')).toMatchObject({ webhook_id: 'a\u009b1Ab\u007fc' })
  })

  it('keeps searchable ids', () => {
    expect(lineOf('top')).toMatchObject({ request_id: 'seen-top', authorization: '[redacted]', token: '[redacted]' })
    expect(lineOf('deep')).toMatchObject({ keys: [{}, { name: 'seen-list' }] })
    expect(lineOf('child')).toMatchObject({ bound: 'seen-child', of: 'seen-parent', apiKey: '[redacted]' })
    expect(lineOf('circle')).toMatchObject({ seen: 'seen-circle' })
  })

  it('records the error, text and stack of a failed query', () => {
    expect(lineOf('drizzle')).toMatchObject({
      err: {
        code: '22P02',
        message: 'invalid input syntax for type integer: "[redacted]"',
        query: 'select $1::int as drizzle',
      },
    })
    expect(lineOf('plain')).toMatchObject({ err: { code: '22P02', query: 'select $1::int as plain' } })
    expect(lineOf('constraint')).toMatchObject({
      err: { code: '23502', message: expect.stringContaining('"request_id"') },
    })
    expect(lineOf('missing')).toMatchObject({
      err: { code: '42P01', message: 'relation "seen_nowhere" does not exist' },
    })
    expect(lineOf('bare')).toMatchObject({ err: { code: '22P02' } })
  })

  it('records the same for a failed query that is the cause of another error, or one of several', () => {
    expect(lineOf('wrapped')).toMatchObject({
      err: { message: 'around drizzle', cause: { code: '22P02', query: 'select $1::int as drizzle' } },
    })
    expect(lineOf('several')).toMatchObject({ err: { message: 'many drizzle', errors: [{ code: '22P02' }] } })
  })

  it('keeps type, code and stack of other errors, and values that are not errors', () => {
    expect(lineOf('url')).toMatchObject({
      err: {
        type: 'TypeError',
        code: 'ERR_INVALID_URL',
        message: 'Invalid URL',
        stack: expect.stringContaining('log-lines.ts'),
      },
    })
    expect(lineOf('refused')).toMatchObject({
      err: { code: 'ECONNREFUSED', message: expect.stringContaining('127.0.0.1:9') },
    })
    expect(lineOf('no error')).toMatchObject({ err: 'seen-string' })
  })
})

describe('the last lines', () => {
  const loggerUrl = new URL('../../src/platform/logger.ts', import.meta.url).href
  const run = (end: string) =>
    new Promise<string>((resolve) => {
      const program = `import { createLogger } from '${loggerUrl}'; const log = createLogger('info'); log.info('first'); log.info('last'); ${end}`
      execFile(process.execPath, ['--input-type=module', '-e', program], (_error, stdout) => resolve(stdout))
    })

  it.each(['', 'process.exit(3)', `throw new Error('unforeseen')`])(
    'are written regardless of how the process ends: %s',
    async (end) => {
      expect(
        (await run(end))
          .trim()
          .split('\n')
          .map((line) => JSON.parse(line).msg),
      ).toEqual(['first', 'last'])
    },
  )
})
