import type { CatalogModel } from './catalog-model.ts'

export const audioModels: readonly CatalogModel[] = [
  {
    slug: 'lyra-audio',
    type: 'audio',
    name: 'Lyra Audio',
    capabilities: ['text-to-audio'],
    input_schema: {
      prompt: { type: 'string', required: true, max_length: 4000, description: 'What it sounds like.' },
      duration: { type: 'number', enum: [5, 10, 20, 30], default: 10, description: 'Seconds.' },
      output_format: { type: 'string', enum: ['wav', 'mp3'], default: 'wav', description: 'File format.' },
      seed: {
        type: 'number',
        min: 0,
        max: 4_294_967_295,
        description: 'Another seed gives another piece for the same prompt.',
      },
    },
    pricing: { credits_base: 0.2, multipliers: { duration: { 5: 5, 10: 10, 20: 20, 30: 30 } } },
    note: 'for 10 seconds',
    engine: 'local-audio',
    environments: ['live', 'sandbox'],
  },
]
