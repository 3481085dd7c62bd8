import fs from 'node:fs/promises'
import path from 'node:path'
import { parseEnv } from 'node:util'
import { expect, it } from 'vitest'
import { z } from 'zod'
import { logLevel, type SettingsReader } from '../../src/platform/settings.ts'
import { readProviderSettings } from '../../src/provider/settings.ts'
import { readReceiverSettings } from '../../src/receiver/settings.ts'

const root = path.resolve(import.meta.dirname, '../..')
const file = path.join(root, 'docs/settings.schema.json')
const none = { databaseUrl: undefined, keys: undefined, secretKey: undefined }

type Recorded = { schema: z.ZodType; fallback?: unknown; isRequired?: true }

/** What both programs look for in production, as they look for it. */
function recordSettings(): Map<string, Recorded> {
  const recorded = new Map<string, Recorded>()
  const reader: SettingsReader = {
    problems: [],
    optional: (name, schema) => {
      if (!recorded.has(name)) recorded.set(name, { schema })
      return undefined
    },
    withDefault: (name, schema, fallback) => {
      recorded.set(name, { schema, fallback })
      return fallback
    },
    required: (name, schema, fallback) => {
      recorded.set(name, { schema, isRequired: true })
      return fallback
    },
  }
  reader.withDefault('LOG_LEVEL', logLevel, 'info')
  readReceiverSettings(reader, { production: true, local: none })
  readProviderSettings(reader, { production: true, local: none })
  return recorded
}

/** Of each name in `.env.example`, the comment above it. */
async function commentsOf(text: string): Promise<Map<string, string>> {
  const comments = new Map<string, string>()
  let comment: string[] = []
  for (const line of text.split('\n')) {
    const name = /^[A-Z_]+(?==)/.exec(line)?.[0]
    if (name !== undefined) comments.set(name, comment.join(' '))
    else if (!line.startsWith('# ') || line.startsWith('# ---')) comment = []
    else if (comments.size > 0 && [...comments.values()].at(-1) === comment.join(' ')) comment = [line.slice(2)]
    else comment.push(line.slice(2))
  }
  return comments
}

async function settingsSchema(): Promise<object> {
  const example = await fs.readFile(path.join(root, '.env.example'), 'utf8')
  const comments = await commentsOf(example)
  const recorded = recordSettings()
  const properties = Object.fromEntries(
    Object.keys(parseEnv(example)).map((name) => {
      const { schema, fallback } = recorded.get(name) ?? { schema: z.string() }
      const { $schema: _, ...form } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' })
      const described = { description: comments.get(name), type: 'string', ...form }
      return [
        name,
        ['string', 'number', 'boolean'].includes(typeof fallback)
          ? { ...described, default: asText(fallback) }
          : described,
      ]
    }),
  )
  const required = [...recorded].flatMap(([name, { isRequired }]) => (isRequired ? [name] : []))
  const isFile = (name: string) => `${name}_FILE` in properties
  const eitherOf = (name: string) => ({ anyOf: [{ required: [name] }, { required: [`${name}_FILE`] }] })
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'Settings of mediadock',
    description:
      'Environment variables, with what production must be given for the receiver. Text that is empty counts as not given.',
    type: 'object',
    properties,
    required: required.filter((name) => !isFile(name) && !name.startsWith('PROVIDER_')),
    allOf: [...required.filter((name) => isFile(name) && !name.startsWith('PROVIDER_')), 'GENERATION_KEYS'].map(
      eitherOf,
    ),
  }
}

function asText(value: unknown): string {
  return value === true ? 'true' : value === false ? 'false' : String(value)
}

it('docs/settings.schema.json is what both programs read, with the words of .env.example', async () => {
  await expect(`${JSON.stringify(await settingsSchema(), undefined, 2)}\n`).toMatchFileSnapshot(file)
})

it('takes the example, and refuses what a start would refuse', async () => {
  const schema = z.fromJSONSchema(JSON.parse(await fs.readFile(file, 'utf8')))
  const example = parseEnv(await fs.readFile(path.join(root, '.env.example'), 'utf8'))
  const given = Object.fromEntries(Object.entries(example).filter(([, value]) => value !== ''))
  expect(schema.safeParse(given).error?.issues ?? []).toEqual([])
  for (const wrong of [
    { PORT: 'http' },
    { LOG_LEVEL: 'loud' },
    { MIGRATE_ON_START: 'yes' },
    { WEBHOOK_PUBLIC_URL: undefined },
  ])
    expect(schema.safeParse({ ...given, ...wrong }).success, JSON.stringify(wrong)).toBe(false)
})
