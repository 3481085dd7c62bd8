import type { SourceKind } from '../domain/source.ts'
import { fal } from './fal.ts'
import { gemini } from './gemini.ts'
import { luma } from './luma.ts'
import { openrouterVideo } from './openrouter-video.ts'
import { replicate } from './replicate.ts'
import { standardWebhooks } from './standard-webhooks.ts'

/** The kinds of sources that SOURCES_FILE can name, besides that of `POST /webhooks`. */
export const kinds: Readonly<Record<string, SourceKind>> = {
  fal,
  gemini,
  luma,
  'openrouter-video': openrouterVideo,
  replicate,
  'standard-webhooks': standardWebhooks,
}
