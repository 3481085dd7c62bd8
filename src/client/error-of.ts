/** Extracts the error from the API's error envelope. */
export function errorOf(body: unknown, status: number): { code: string; message: string } {
  const error: unknown = typeof body === 'object' && body !== null && 'error' in body ? body.error : undefined
  if (typeof error !== 'object' || error === null)
    return { code: 'unexpected_answer', message: `the answer ${status} did not come from mediadock` }
  return {
    code: 'code' in error ? String(error.code) : 'unexpected_answer',
    message: 'message' in error ? String(error.message) : `the answer is ${status}`,
  }
}
