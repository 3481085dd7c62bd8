import fs from 'node:fs/promises'
import path from 'node:path'
import { parseEnv } from 'node:util'
import { expect, it } from 'vitest'
import { parse } from 'yaml'
import { z } from 'zod'
import { programs, readConfig, settingNames } from '../../src/config/config.ts'
import { defaultOf, exampleOf, pageOf, recordSettings, sectionsSchema } from './settings-pages.ts'

const root = path.resolve(import.meta.dirname, '../..')
const at = (file: string) => path.join(root, file)
const read = (file: string) => fs.readFile(at(file), 'utf8')
const sections = sectionsSchema.parse(parse(await read('docs/settings.yaml')))
const words = Object.fromEntries(sections.flatMap(({ settings }) => Object.entries(settings)))
const recorded = recordSettings()

function settingsSchema(): object {
  const names = ['NODE_ENV', ...Object.keys(words)]
  const properties = Object.fromEntries(
    names.map((name) => {
      const { schema } = recorded.get(name) ?? { schema: z.string() }
      const { $schema: _, ...form } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' })
      const fallback = defaultOf(name, recorded)
      const described = { description: words[name]?.effect, type: 'string', ...form }
      return [name, fallback === undefined ? described : { ...described, default: fallback }]
    }),
  )
  const required = [...recorded].flatMap(([name, { isRequired }]) => (isRequired ? [name] : []))
  const isFile = (name: string) => `${name}_FILE` in properties
  const eitherOf = (name: string) => ({ anyOf: [{ required: [name] }, { required: [`${name}_FILE`] }] })
  const ofReceiver = required.filter((name) => !name.startsWith('PROVIDER_'))
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'Settings of mediadock',
    description:
      'Environment variables, and those that the receiver requires in production. Empty counts as not given.',
    type: 'object',
    properties,
    required: ofReceiver.filter((name) => !isFile(name)),
    allOf: [...ofReceiver.filter(isFile), 'GENERATION_KEYS'].map(eitherOf),
  }
}

it('every setting that is read is described, and no other', () => {
  const read = [...settingNames()].filter((name) => name !== 'NODE_ENV')
  expect(Object.keys(words).toSorted()).toEqual(read.toSorted())
})

it('docs/settings.md, .env.example and docs/settings.schema.json match the settings', async () => {
  await expect(pageOf(sections, recorded)).toMatchFileSnapshot(at('docs/settings.md'))
  await expect(exampleOf(sections, recorded)).toMatchFileSnapshot(at('.env.example'))
  await expect(`${JSON.stringify(settingsSchema(), undefined, 2)}\n`).toMatchFileSnapshot(
    at('docs/settings.schema.json'),
  )
})

it('the schema accepts the example, and refuses what a start refuses', async () => {
  const schema = z.fromJSONSchema(JSON.parse(await read('docs/settings.schema.json')))
  const example = parseEnv(await read('.env.example'))
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

it('.env.example contains the defaults, except where it shows examples', async () => {
  const laptop = {
    databaseUrl: 'postgres://local/x',
    keys: '[{"name":"x","signing_secret":"whsec_of_this_test","retired":true}]',
    secretKey: 'A'.repeat(43) + '=',
  }
  const isExample = (name: string) => name === 'NODE_ENV' || words[name]?.example !== undefined
  const given = Object.entries(parseEnv(await read('.env.example'))).filter(([name]) => !isExample(name))
  expect(readConfig(Object.fromEntries(given), programs, laptop)).toEqual(readConfig({}, programs, laptop))
})

it.each([
  'README.md',
  'docs/deploy.md',
  'docs/postgres.md',
  'docs/archive.md',
  'docs/provider.md',
  'docs/production.md',
])('%s names no setting that is not read', async (file) => {
  // The pages define these for their own commands.
  const read = new Set([...settingNames(), 'ADMIN_URL', 'NEW_ADMIN_URL'])
  const named = [...(await fs.readFile(at(file), 'utf8')).matchAll(/`([A-Z]+(?:_[A-Z]+)+)`/g)].map(
    ([, name = '']) => name,
  )
  const ends =
    /_(?:URL|HOST|PORT|TOKEN|FILE|SECONDS|CRON|DAYS|ROWS|BYTES|MINUTE|SIZE|START|LEVEL|KEYS|PROXY|HOSTS|DIR|KEY)$/
  const ours = named.filter((name) => ends.test(name))
  expect(ours.length).toBeGreaterThan(0)
  // The client of S3 reads the variables of AWS.
  expect(ours.filter((name) => !read.has(name) && !name.startsWith('AWS_'))).toEqual([])
})
