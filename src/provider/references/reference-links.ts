import { HttpError } from '../../platform/http/http.ts'
import { type Dialling, diallingOf, parseGivenUrl } from '../../platform/outward/public-url.ts'
import type { Input } from '../catalog/input.ts'
import { placeOf, type Reference } from '../engines/engine.ts'
import { mediaFileOf } from '../engines/media-store.ts'

/** A link of an input. */
export type ReferenceLink = Pick<Reference, 'field' | 'position' | 'kind'> & { link: string }

export type ReferenceRules = {
  /** PROVIDER_REFERENCE_ALLOW: origins that may be plain http and private, for local use only. */
  referenceAllow: readonly string[]
  mediaDir: string
  mediaUrl: string
  baseUrl: string
}

/** The links of an input, in order. */
export function referencesIn(input: Input): ReferenceLink[] {
  return Object.entries(input).flatMap(([field, value]) => {
    const kind = (['image', 'video', 'audio'] as const).find((one) => field === `${one}_url` || field === `${one}_urls`)
    if (kind === undefined) return []
    const links = Array.isArray(value) ? value : [value]
    return links.map((link, position) => ({ field, position, kind, link: String(link) }))
  })
}

/** A file of our own media folder, or how to connect to a link. An origin in PROVIDER_REFERENCE_ALLOW is `named`. */
type ReferencePlace = { kind: 'own'; file: string } | Dialling

/** Decides from a link's text how it is read. */
export function judgeReference(link: string, rules: ReferenceRules): ReferencePlace {
  const url = parseGivenUrl(link)
  if (typeof url === 'string') return { kind: 'refused', why: url }
  const file = mediaFileOf(url, rules)
  if (file === null) return { kind: 'refused', why: 'must name a file of the media host' }
  return file === undefined ? diallingOf(url, rules.referenceAllow) : { kind: 'own', file }
}

/** Refuses an input with a link that must never be fetched (spec, submit rule 2). */
export function checkReferences(input: Input, rules: ReferenceRules): void {
  for (const reference of referencesIn(input)) {
    const place = judgeReference(reference.link, rules)
    if (place.kind === 'refused') throw new HttpError(422, 'model_input_invalid', `${placeOf(reference)} ${place.why}`)
  }
}
