import { z } from 'zod'
import { logLevel, type SettingsReader } from '../../src/platform/settings.ts'
import { readProviderSettings } from '../../src/provider/settings.ts'
import { readReceiverSettings } from '../../src/receiver/settings.ts'

const wordsSchema = z.strictObject({
  effect: z.string(),
  change: z.string().optional(),
  type: z.string().optional(),
  default: z.union([z.string(), z.number()]).optional(),
  example: z.string().optional(),
  link: z.string().optional(),
})

/** docs/settings.yaml: the words of each setting, by section. */
export const sectionsSchema = z.array(
  z.strictObject({
    title: z.string(),
    link: z.string().optional(),
    settings: z.record(z.string(), wordsSchema),
  }),
)

type Sections = z.infer<typeof sectionsSchema>
type Recorded = { schema: z.ZodType; fallback?: unknown; isRequired?: true }

/** The settings that both programs read in production, with their schemas and defaults. */
export function recordSettings(): Map<string, Recorded> {
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
  const none = { databaseUrl: undefined, keys: undefined, secretKey: undefined }
  reader.withDefault('LOG_LEVEL', logLevel, 'info')
  readReceiverSettings(reader, { production: true, local: none })
  readProviderSettings(reader, { production: true, local: none })
  return recorded
}

const textOf = (value: unknown) =>
  value === true ? 'true' : value === false ? 'false' : Array.isArray(value) ? value.join(',') : String(value)

/** A default as the environment gives it. */
export function defaultOf(name: string, recorded: Map<string, Recorded>): string | undefined {
  const { fallback, schema } = recorded.get(name) ?? {}
  if (fallback === undefined || (Array.isArray(fallback) && fallback.length === 0)) return undefined
  const values = schema === undefined ? [] : choicesOf(schema)
  if (typeof fallback === 'boolean' && values.includes('on')) return fallback ? 'on' : 'off'
  return textOf(fallback)
}

function choicesOf(schema: z.ZodType): unknown[] {
  const { enum: choices, const: only } = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' })
  return only === undefined ? (choices ?? []) : [only]
}

/** A type in words, from the schema. */
function typeOf(schema: z.ZodType | undefined): string {
  if (schema === undefined) return 'text'
  const choices = choicesOf(schema)
  if (choices.length > 0) return choices.map((choice) => `\`${String(choice)}\``).join(', ')
  const input = z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' })
  if (input.format === 'uri') return 'URL'
  const output = z.toJSONSchema(schema, { io: 'output', unrepresentable: 'any' })
  if (output.type !== 'integer') return 'text'
  const { minimum, maximum } = output
  return maximum === undefined || maximum > 1e9 ? 'whole number above 0' : `whole number, ${minimum ?? 1} to ${maximum}`
}

/** docs/settings.md */
export function pageOf(sections: Sections, recorded: Map<string, Recorded>): string {
  const tables = sections.map(({ title, link, settings }) => {
    const rows = Object.entries(settings).map(([name, words]) => {
      const given = words.default ?? defaultOf(name, recorded)
      const shown = given === undefined ? '' : words.default === undefined ? `\`${given}\`` : String(given)
      const more = words.link === undefined ? '' : ` [More](${words.link})`
      const type = words.type ?? typeOf(recorded.get(name)?.schema)
      return `| \`${name}\` | ${type} | ${shown} | ${words.effect}${more} | ${words.change ?? ''} |`
    })
    const head = '| setting | type | default | effect | change it |\n|---|---|---|---|---|'
    return `## ${title}\n\n${link === undefined ? '' : `[More](${link})\n\n`}${head}\n${rows.join('\n')}\n`
  })
  return `# Settings

Every setting is an environment variable. An empty variable counts as not set. A start checks all settings, and lists every wrong value and misspelt name at once (exit code 78). With \`NODE_ENV=production\` nothing is embedded, and a receiver needs the settings of the first table. Otherwise a laptop is assumed, and these have defaults.

Copy \`.env.example\`, which has every setting with its default or an example, and use it with \`node --env-file\`, \`env_file\` of a compose file, or \`EnvironmentFile\` of systemd. \`mediadock config check\` checks what a start would read. [settings.schema.json](settings.schema.json) is a JSON schema for editors and charts.

${tables.join('\n')}`
}

/** .env.example */
export function exampleOf(sections: Sections, recorded: Map<string, Recorded>): string {
  const blocks = sections.map(({ title, settings }) => {
    const lines = Object.entries(settings).map(([name, { effect, example }]) => {
      return `# ${effect}\n${name}=${example ?? defaultOf(name, recorded) ?? ''}`
    })
    return `# --- ${title}\n\n${lines.join('\n')}\n`
  })
  return `# Every setting with its default or an example. Written from docs/settings.yaml; docs/settings.md explains them. Copy it to .env and fill it in:
#
#   node --env-file=.env bin/mediadock.js start receiver
#
# An empty value counts as not set. A start refuses wrong values and misspelt names.
# This is not a shell script: values with blanks have no quotes, so do not source it.

NODE_ENV=production

${blocks.join('\n')}`
}
