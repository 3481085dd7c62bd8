/**
 * A generation failed, or the wait for it ended early. `code` is the provider's or mediadock's
 * (`insufficient_credits`, `model_input_invalid`), `generation_failed`, `timeout` or `aborted`. After `timeout` and
 * `aborted` the generation continues: call again with the same idempotencyKey.
 */
export class GenerationError extends Error {
  override name = 'GenerationError'
  code: string
  idempotencyKey: string | undefined
  /** The input field that is invalid, if the message names it. */
  field: string | undefined
  constructor(code: string, message: string, more: { idempotencyKey?: string | undefined; cause?: unknown } = {}) {
    super(message, { cause: more.cause })
    this.code = code
    this.idempotencyKey = more.idempotencyKey
    this.field = code === 'model_input_invalid' ? /\binput\.([\w-]+)/.exec(message)?.[1] : undefined
  }
}

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
