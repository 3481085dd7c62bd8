import { z } from 'zod'
import type { InputDescriptor } from '../../wire/schemas.ts'
import { environments } from '../domain/schema.ts'
import { engineKinds } from '../engines/engine-settings.ts'

/** The schema of PROVIDER_CATALOG's file (docs/engines.md). docs/catalog.schema.json is generated from it. */

const decimal = z
  .number()
  .positive()
  // Up to this limit, a double distinguishes all numbers with six decimals.
  .max(1_000_000_000)
  .refine((value) => Number(value.toFixed(6)) === value, 'must have at most 6 decimals')

const required = z.boolean().optional()
const description = z.string().optional()
const textLength = z.int().positive()

const descriptorSchema = z.discriminatedUnion(
  'type',
  [
    z.strictObject({
      type: z.literal('string'),
      required,
      enum: z.array(z.string()).min(1).optional(),
      default: z.string().optional(),
      max_length: textLength.optional(),
      description,
    }),
    z.strictObject({
      type: z.literal('number'),
      required,
      enum: z.array(z.number()).min(1).optional(),
      default: z.number().optional(),
      min: z.number().optional(),
      max: z.number().optional(),
      description,
    }),
    z.strictObject({ type: z.literal('boolean'), required, default: z.boolean().optional(), description }),
    z.strictObject({
      type: z.literal('array'),
      required,
      items: z.discriminatedUnion(
        'type',
        [
          z.strictObject({ type: z.literal('string'), max_length: textLength }),
          z.strictObject({ type: z.literal('number') }),
        ],
        'must be string or number',
      ),
      max_items: z.int().positive(),
      description,
    }),
  ],
  'must be string, number, boolean or array',
)
type Descriptor = z.infer<typeof descriptorSchema> & InputDescriptor

const common = {
  slug: z.string().regex(/^[a-z0-9][a-z0-9-]{0,79}$/, 'must be 1 to 80 small letters, digits and hyphens'),
  name: z.string().min(1),
  capabilities: z.array(z.string().min(1)).min(1),
  environments: z
    .array(z.enum(environments))
    .describe('The environments in which the model is active until an operator changes it.'),
  input_schema: z.record(
    z.string().regex(/^[a-z][a-z0-9_]{0,63}$/, 'must be 1 to 64 small letters, digits and underscores'),
    descriptorSchema,
  ),
  pricing: z.strictObject({
    credits_base: decimal,
    multipliers: z.record(z.string(), z.record(z.string(), decimal)).optional(),
  }),
  note: z.string().optional().describe('The input to which the listed price applies.'),
}

type EngineName = keyof typeof engineKinds
type EngineKind<Name extends EngineName> = (typeof engineKinds)[Name]

const engineNames = Object.keys(engineKinds).join(', ')

function modelOf<Name extends EngineName>(engine: Name) {
  const { types, settings }: EngineKind<Name> = engineKinds[engine]
  return z.strictObject({
    ...common,
    type: z.enum(types, `must be ${types.join(' or ')}: the engine ${engine} makes nothing else`),
    engine: z.literal(engine),
    engine_settings: settings,
  })
}

const modelSchema = z
  .discriminatedUnion(
    'engine',
    [
      modelOf('local-image'),
      modelOf('local-image-with-original'),
      modelOf('local-video'),
      modelOf('local-audio'),
      modelOf('openai-images'),
      modelOf('http'),
    ],
    { error: ({ code }) => (code === 'invalid_union' ? `must be one of ${engineNames}` : undefined) },
  )
  .superRefine((model, context) => {
    const add = (path: (string | number)[], message: string) => context.addIssue({ code: 'custom', path, message })
    for (const [name, descriptor] of Object.entries(model.input_schema))
      checkDescriptor(['input_schema', name], descriptor, add)
    for (const [name, factors] of Object.entries(model.pricing.multipliers ?? {})) {
      const descriptor = Object.hasOwn(model.input_schema, name) ? model.input_schema[name] : undefined
      const problem = multiplierProblem(name, factors, descriptor)
      if (problem) add(['pricing', 'multipliers', name], problem)
    }
    const settings: Record<string, unknown> = model.engine_settings
    if (settings['token_env'] !== undefined && settings['token_file'] !== undefined)
      add(['engine_settings', 'token_file'], 'is set together with token_env: remove one')
  })

export const catalogFileSchema = z
  .strictObject({ $schema: z.string().optional(), models: z.array(modelSchema).min(1) })
  .superRefine(({ models }, context) => {
    const seen = new Set<string>()
    for (const [index, { slug }] of models.entries()) {
      const message = `${slug} is the slug of an earlier model`
      if (seen.has(slug)) context.addIssue({ code: 'custom', path: ['models', index, 'slug'], message })
      seen.add(slug)
    }
  })

type Add = (path: (string | number)[], message: string) => void

function checkDescriptor(path: string[], descriptor: Descriptor, add: Add): void {
  const { default: value, enum: values, max_length: maxLength, min = -Infinity, max = Infinity } = descriptor
  if (descriptor.type === 'string' && values === undefined && maxLength === undefined)
    add([...path, 'type'], 'is text without a limit: set max_length or enum')
  if (value === undefined) return
  if (descriptor.required) add([...path, 'default'], 'is never used: the parameter is required')
  if (values && !values.includes(value as never)) add([...path, 'default'], 'is not in enum')
  if (typeof value === 'number' && (value < min || value > max)) add([...path, 'default'], 'lies outside min and max')
  if (typeof value === 'string' && value.length > (maxLength ?? Infinity))
    add([...path, 'default'], 'is longer than max_length')
}

/**
 * Returns what is wrong with one priced parameter: it must always be set, and have a finite list of values with one
 * factor each (decisions, price).
 */
function multiplierProblem(
  name: string,
  factors: Record<string, number>,
  descriptor: Descriptor | undefined,
): string | undefined {
  if (descriptor === undefined) return `${name} is not a parameter of input_schema`
  if (!descriptor.required && descriptor.default === undefined)
    return `input_schema.${name} must be required or have a default`
  const values = (descriptor.type === 'boolean' ? [true, false] : (descriptor.enum ?? [])).map(String)
  if (values.length === 0) return `input_schema.${name} must list its values in enum`
  const missing = values.filter((value) => !Object.hasOwn(factors, value))
  if (missing.length > 0) return `has no factor for ${missing.join(', ')}`
  const unknown = Object.keys(factors).filter((value) => !values.includes(value))
  return unknown.length > 0
    ? `has a factor for ${unknown.join(', ')}, which input_schema.${name} does not list`
    : undefined
}
