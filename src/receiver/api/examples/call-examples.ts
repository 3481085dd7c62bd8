import type { ZodOpenApiContentObject, ZodOpenApiOperationObject } from 'zod-openapi'

/** Examples of a call: its body, and its answers by status. */
export type CallExamples = { body?: object; 200?: object; 201?: object; 202?: object }

/** Adds the examples to the document of a call, beside its schemas. */
export function withExamples(
  document: ZodOpenApiOperationObject,
  { body, ...answers }: CallExamples = {},
): ZodOpenApiOperationObject {
  const responses = { ...document.responses }
  for (const status of [200, 201, 202] as const) {
    const response = responses[`${status}`]
    if (response && 'content' in response) responses[`${status}`] = withExample(response, answers[status])
  }
  return {
    ...document,
    responses,
    ...(document.requestBody && { requestBody: withExample(document.requestBody, body) }),
  }
}

function withExample<T extends { content?: ZodOpenApiContentObject }>(message: T, example: object | undefined): T {
  const json = message.content?.['application/json']
  if (json === undefined || example === undefined) return message
  return { ...message, content: { ...message.content, 'application/json': { ...json, example } } }
}
