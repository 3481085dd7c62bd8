import { expect } from 'vitest'

type Answer = { content?: { 'application/json'?: { example?: unknown } } }
type Document = { paths: Record<string, Record<string, { responses: Record<string, Answer> }>> }

const envelope = { type: expect.stringMatching(/_error$/), code: expect.stringMatching(/^[a-z_]+$/), message: expect.stringMatching(/\w/) }

/** Each error answer that an OpenAPI document names has an example, in the envelope of both APIs. */
export function expectErrorExamples({ paths }: Document): void {
  const answers = Object.values(paths).flatMap((methods) => Object.values(methods).flatMap(({ responses }) => Object.entries(responses)))
  const errors = answers.filter(([status]) => /^[45]\d\d$/.test(status))
  expect(errors.length).toBeGreaterThan(20)
  for (const [status, { content }] of errors) expect(content?.['application/json']?.example, status).toEqual({ error: envelope })
}
