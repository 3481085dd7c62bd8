import type { SourceKind } from '../domain/source.ts'
import { fal } from './fal/source.ts'
import { gemini } from './gemini/source.ts'
import { luma } from './luma/source.ts'
import { openrouterVideo } from './openrouter-video/source.ts'
import { replicate } from './replicate/source.ts'
import { standardWebhooks } from './standard-webhooks/source.ts'

/** The kinds of sources that SOURCES_FILE can name, besides that of `POST /webhooks`. */
export const kinds: Readonly<Record<string, SourceKind>> = {
  fal,
  gemini,
  luma,
  'openrouter-video': openrouterVideo,
  replicate,
  'standard-webhooks': standardWebhooks,
}
