import { setTimeout as delay } from 'node:timers/promises'
import { z } from 'zod'
import { HttpError } from '../platform/http/http.ts'
import type { SourceReads } from '../receiver/accounts/source-reads.ts'
import { catalogEntrySchema, modelSchema, type InputDescriptor, type Model } from '../wire/schemas.ts'
import { providerReadsOf, withReceiver } from './processing.ts'
import { defineCommand } from './usage.ts'

const catalogSchema = z.object({ data: z.array(catalogEntrySchema.pick({ slug: true })) })

export const command = defineCommand({
  help: `
mediadock types [--key-name K]

Prints TypeScript types of the input of every model that a key may use, from the provider's current
catalog. Takes one call of the key's budget for the list and one per model, and waits while none is left.

  mediadock types > src/models.ts
`,
  options: { 'key-name': { type: 'string' } },
  run: ({ 'key-name': keyName }, _words, env) =>
    withReceiver(env, async (given) => {
      const read = waiting(providerReadsOf(given), { keyName, interrupted: given.interrupted })
      const { data } = catalogSchema.parse(await read('/v1/models'))
      const models: Model[] = []
      for (const { slug } of data) models.push(modelSchema.parse(await read(`/v1/models/${encodeURIComponent(slug)}`)))
      process.stdout.write(typesOf(models))
      return 0
    }),
})

type Reading = { keyName: string | undefined; interrupted: AbortSignal }

/** Returns a reader for this key, which waits while the key has no call left, until Ctrl-C. */
function waiting(reads: SourceReads, { keyName, interrupted }: Reading) {
  return async (path: string): Promise<unknown> => {
    for (;;) {
      try {
        const { status, body } = await reads({ path }, keyName)
        if (status === 200) return body
        throw new Error(`the provider answered ${status} to GET ${path}: ${JSON.stringify(body).slice(0, 500)}`)
      } catch (error) {
        if (!(error instanceof HttpError) || error.code !== 'no_call_left') throw error
        await delay(Number(error.headers['retry-after'] ?? 1) * 1000, undefined, { signal: interrupted })
      }
    }
  }
}

/** Returns TypeScript source with the input types of these models. */
export function typesOf(models: readonly Model[]): string {
  const inputs = models.map(({ slug, input_schema }) => {
    const fields = Object.entries(input_schema).map(([name, descriptor]) => fieldOf(name, descriptor))
    return `  ${JSON.stringify(slug)}: {\n${fields.join('')}  }\n`
  })
  return `// Written by \`mediadock types\`.

/** The input of each model, by its slug. */
export type ModelInputs = {
${inputs.join('')}}

export type ModelSlug = keyof ModelInputs
`
}

function fieldOf(name: string, descriptor: InputDescriptor): string {
  const { required, description, min, max, max_length, max_items, default: usual } = descriptor
  const notes = [
    description?.replace(/\.$/, ''),
    min === undefined ? undefined : `at least ${min}`,
    max === undefined ? undefined : `at most ${max}`,
    max_length === undefined ? undefined : `at most ${max_length} characters`,
    max_items === undefined ? undefined : `at most ${max_items} items`,
    usual === undefined ? undefined : `default ${JSON.stringify(usual)}`,
  ].filter((note) => note !== undefined)
  // A description from the provider must not end the comment.
  const comment =
    notes.length === 0 ? '' : `    /** ${notes.join('; ').replaceAll('*/', '* /').replaceAll(/\s+/g, ' ')} */\n`
  return `${comment}    ${JSON.stringify(name)}${required === true ? '' : '?'}: ${typeOf(descriptor)}\n`
}

function typeOf({ type, enum: allowed, items }: InputDescriptor): string {
  if (type === 'array') return `${items?.type ?? 'unknown'}[]`
  return allowed === undefined || allowed.length === 0
    ? type
    : allowed.map((value) => JSON.stringify(value)).join(' | ')
}
