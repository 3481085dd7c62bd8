import { expect, it, onTestFinished, vi } from 'vitest'
import { HttpError } from '../../../src/platform/http/http.ts'
import { NoAnswerError } from '../../../src/platform/postgres/errors.ts'
import { createAvailability } from '../../../src/provider/api/callers.ts'
import { watchedLogger } from '../../platform/support/watched-logger.ts'

const failureOf = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: unknown) => error,
  )
const unavailable = { status: 503, code: 'unavailable', headers: { 'Retry-After': '5' } }

it('answers 503 at once beyond 2,000 concurrent requests, and continues when one has ended', async () => {
  const available = createAvailability(watchedLogger().logger)
  const held = Array.from({ length: 2000 }, () => Promise.withResolvers<void>())
  const running = held.map(({ promise }) => available(() => promise))
  let ran = 0
  const failing = async () => {
    throw new HttpError(404, 'x', 'x')
  }
  const one = async () => void (ran += 1)
  expect(await failureOf(available(one))).toMatchObject(unavailable)
  expect(ran).toBe(0)
  held[0]?.resolve()
  await running[0]
  await available(one)
  expect(ran).toBe(1)
  // A failure gives its place back as well.
  held[1]?.reject(new HttpError(400, 'x', 'x'))
  await failureOf(running[1] ?? Promise.resolve())
  await Promise.all([available(one), failureOf(available(failing))])
  held.forEach(({ resolve }) => resolve())
  await Promise.allSettled(running)
})

it('aborts the signal of work whose answer is no longer awaited', async () => {
  vi.useFakeTimers()
  onTestFinished(() => void vi.useRealTimers())
  const available = createAvailability(watchedLogger().logger)
  const body = Promise.withResolvers<void>()
  let written = 0
  const submit = () =>
    available(async (signal) => {
      await body.promise
      signal.throwIfAborted()
      written += 1
    })
  const late = failureOf(submit())
  await vi.advanceTimersByTimeAsync(10_000)
  expect(await late).toMatchObject(unavailable)
  const inTime = submit()
  body.resolve()
  await inTime
  expect(written).toBe(1)
})

it('answers 503 for faults of Postgres and for a full disk only', async () => {
  const available = createAvailability(watchedLogger().logger)
  const failing = (error: unknown) =>
    failureOf(
      available(async () => {
        throw error
      }),
    )
  for (const code of ['08006', '53300', '57P01', '57014', '25006', 'ECONNREFUSED', 'ENOSPC', 'EDQUOT', 'EROFS'])
    expect(await failing(Object.assign(new Error(code), { code }))).toMatchObject(unavailable)
  expect(await failing(new NoAnswerError('x'))).toMatchObject(unavailable)
  for (const code of ['23505', '22003', 'ERR_X', 'ENOENT'])
    expect(await failing(Object.assign(new Error(code), { code }))).toMatchObject({ message: code, code })
})
