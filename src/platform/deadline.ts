export class DeadlineError extends Error {
  override name = 'DeadlineError'
  code = 'deadline_exceeded' as const
}

/** Rejects with a DeadlineError if `work` takes longer than `ms`. Does not stop the work. */
export async function withDeadline<T>(work: Promise<T>, ms: number, what: string): Promise<T> {
  const { promise: expired, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => reject(new DeadlineError(`${what} took longer than ${Math.round(ms)} ms`)), ms)
  try {
    return await Promise.race([work, expired])
  } finally {
    clearTimeout(timer)
  }
}
