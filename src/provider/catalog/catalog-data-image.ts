import type { InputDescriptor } from '../../wire/schemas.ts'
import type { CatalogModel } from './catalog-model.ts'

const both = ['live', 'sandbox'] as const

const prompt: InputDescriptor = {
  type: 'string',
  required: true,
  max_length: 4000,
  description: 'What the picture shows.',
}

const aspectRatio: InputDescriptor = {
  type: 'string',
  enum: ['1:1', '16:9', '9:16'],
  default: '1:1',
  description: 'Shape of the picture; 1:1 is 1024 by 1024 pixels.',
}

const seed: InputDescriptor = {
  type: 'number',
  min: 0,
  max: 4_294_967_295,
  description: 'Another seed gives another picture of the same prompt.',
}

const outputFormat: InputDescriptor = {
  type: 'string',
  enum: ['png', 'webp'],
  default: 'png',
  description: 'File format of url.',
}

const strength: InputDescriptor = {
  type: 'number',
  min: 0,
  max: 1,
  description: 'How far the result leaves the picture that it starts from: 0 keeps it, 0.5 unless given.',
}

export const imageModels: readonly CatalogModel[] = [
  {
    slug: 'aurora-image',
    type: 'image',
    name: 'Aurora Image',
    capabilities: ['text-to-image', 'image-to-image'],
    input_schema: {
      prompt,
      image_url: {
        type: 'string',
        max_length: 2048,
        description: 'Picture to start from: PNG, JPEG or WebP, at most 20 MB.',
      },
      strength,
      aspect_ratio: aspectRatio,
    },
    pricing: { credits_base: 4 },
    note: 'per image',
    engine: 'local-image',
    environments: both,
  },
  {
    slug: 'aurora-image-pro',
    type: 'image',
    name: 'Aurora Image Pro',
    capabilities: ['text-to-image'],
    input_schema: {
      prompt,
      num_images: {
        type: 'number',
        enum: [1, 2, 3, 4],
        min: 1,
        max: 4,
        default: 1,
        description: 'Pictures made by one request.',
      },
      resolution: { type: 'string', enum: ['1k', '2k'], default: '1k', description: '2k doubles width and height.' },
      aspect_ratio: { ...aspectRatio, enum: ['1:1', '16:9', '9:16', '4:3', '3:4', '3:2', '2:3', '21:9'] },
      output_format: {
        ...outputFormat,
        default: 'webp',
        description: 'File format of url; original_url is always a lossless PNG.',
      },
      seed,
    },
    pricing: {
      credits_base: 6,
      multipliers: { num_images: { 1: 1, 2: 2, 3: 3, 4: 4 }, resolution: { '1k': 1, '2k': 1.75 } },
    },
    note: 'for one image at 1k',
    engine: 'local-image-with-original',
    environments: both,
  },
  {
    slug: 'aurora-image-edit',
    type: 'image',
    name: 'Aurora Image Edit',
    capabilities: ['image-to-image'],
    input_schema: {
      prompt: { ...prompt, description: 'What to change.' },
      image_urls: {
        type: 'array',
        items: { type: 'string', max_length: 2048 },
        required: true,
        max_items: 8,
        description:
          'Pictures to work from: the first one is edited, the others are composed into it. PNG, JPEG or WebP, at most 20 MB each.',
      },
      strength,
      aspect_ratio: aspectRatio,
      output_format: outputFormat,
      seed,
    },
    pricing: { credits_base: 5.5 },
    note: 'per image',
    engine: 'local-image',
    environments: both,
  },
  {
    slug: 'aurora-image-preview',
    type: 'image',
    name: 'Aurora Image Preview',
    capabilities: ['text-to-image'],
    input_schema: {
      prompt,
      num_images: {
        type: 'number',
        enum: [1, 2, 3, 4],
        min: 1,
        max: 4,
        default: 1,
        description: 'Pictures made by one request.',
      },
      aspect_ratio: aspectRatio,
    },
    pricing: { credits_base: 2.5, multipliers: { num_images: { 1: 1, 2: 2, 3: 3, 4: 4 } } },
    note: 'for one image; sandbox only until it is released',
    engine: 'local-image',
    environments: ['sandbox'],
  },
]
