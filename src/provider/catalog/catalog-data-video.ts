import type { InputDescriptor } from '../../wire/schemas.ts'
import type { CatalogModel } from './catalog-model.ts'

const both = ['live', 'sandbox'] as const

const wholeSeconds = Array.from({ length: 27 }, (_, index) => index + 4)

const references = (maxItems: number, description: string): InputDescriptor => ({
  type: 'array',
  items: { type: 'string', max_length: 2048 },
  max_items: maxItems,
  description,
})

const imageUrl: InputDescriptor = {
  type: 'string',
  required: true,
  max_length: 2048,
  description: 'First frame of the clip: PNG, JPEG or WebP, at most 20 MB.',
}

const resolution: InputDescriptor = {
  type: 'string',
  enum: ['480p', '720p', '1080p'],
  default: '720p',
  description: 'Length of the short side in pixels.',
}

/** The confirmed limits of the newer video family (spec, Model); both of its modes share them. */
const meridianInput: Record<string, InputDescriptor> = {
  prompt: { type: 'string', required: true, max_length: 30_000, description: 'What happens in the clip.' },
  duration: { type: 'number', enum: wholeSeconds, min: 4, max: 30, default: 5, description: 'Whole seconds.' },
  resolution,
  aspect_ratio: {
    type: 'string',
    enum: ['16:9', '9:16', '1:1', '4:3', '3:4', '21:9', 'adaptive'],
    default: '16:9',
    description: 'adaptive takes the shape of the first reference picture or video, and is 16:9 without one.',
  },
  image_urls: references(30, 'Pictures that the clip shows in turn: PNG, JPEG or WebP, at most 20 MB each.'),
  video_urls: references(
    10,
    'Videos that the clip continues: MP4, QuickTime or WebM, at most 100 MB and 18,000 frames each.',
  ),
  audio_urls: references(
    10,
    'Sounds of the sound track, where generate_audio is true: MP3, WAV, FLAC, Ogg, AAC or MP4, at most 100 MB each.',
  ),
  generate_audio: {
    type: 'boolean',
    default: false,
    description: 'true adds a sound track: of audio_urls, or one of its own.',
  },
}

/** Base price is one second at 720p without sound. */
const meridianPricing: CatalogModel['pricing'] = {
  credits_base: 4,
  multipliers: {
    duration: Object.fromEntries(wholeSeconds.map((seconds) => [seconds, seconds])),
    resolution: { '480p': 0.5, '720p': 1, '1080p': 2.25 },
    generate_audio: { true: 1.5, false: 1 },
  },
}

const meridianNote = 'for 5 seconds at 720p without sound'

export const videoModels: readonly CatalogModel[] = [
  {
    slug: 'meridian-text-to-video',
    type: 'video',
    name: 'Meridian (text to video)',
    capabilities: ['text-to-video'],
    input_schema: meridianInput,
    pricing: meridianPricing,
    note: meridianNote,
    engine: 'local-video',
    environments: both,
  },
  {
    slug: 'meridian-image-to-video',
    type: 'video',
    name: 'Meridian (image to video)',
    capabilities: ['image-to-video'],
    input_schema: {
      image_url: imageUrl,
      ...meridianInput,
      aspect_ratio: { ...meridianInput['aspect_ratio'], type: 'string', default: 'adaptive' },
    },
    pricing: meridianPricing,
    note: meridianNote,
    engine: 'local-video',
    environments: both,
  },
  {
    slug: 'vela-image-to-video',
    type: 'video',
    name: 'Vela (image to video)',
    capabilities: ['image-to-video'],
    input_schema: {
      image_url: imageUrl,
      prompt: { type: 'string', max_length: 2000, description: 'How the picture moves.' },
      duration: { type: 'number', enum: [4, 8], default: 4, description: 'Seconds.' },
      resolution,
      aspect_ratio: { type: 'string', enum: ['16:9', '9:16', '1:1'], default: '16:9' },
    },
    pricing: {
      credits_base: 12,
      multipliers: { duration: { 4: 1, 8: 2 }, resolution: { '480p': 0.75, '720p': 1, '1080p': 1.5 } },
    },
    note: 'for 4 seconds at 720p',
    engine: 'local-video',
    environments: both,
  },
  {
    slug: 'vela-legacy-text-to-video',
    type: 'video',
    name: 'Vela Legacy (text to video)',
    capabilities: ['text-to-video'],
    input_schema: {
      prompt: { type: 'string', required: true, max_length: 1000, description: 'What happens in the clip.' },
      duration: { type: 'number', enum: [4, 8], default: 4, description: 'Seconds.' },
    },
    pricing: { credits_base: 9, multipliers: { duration: { 4: 1, 8: 2 } } },
    note: 'for 4 seconds; withdrawn',
    engine: 'local-video',
    environments: [],
  },
]
