/**
 * The first bytes of a file, which show its type. WebM names it last, after a header of up to some hundred bytes.
 */
export const typeBytes = 4096

type Signature = { contentType: string; extension: string; is: (head: Buffer) => boolean }

const starts =
  (text: string, at = 0) =>
  (head: Buffer) =>
    head.toString('latin1', at, at + text.length) === text
const brand = (pattern: RegExp) => (head: Buffer) =>
  starts('ftyp', 4)(head) && pattern.test(head.toString('latin1', 8, 12))

/** The first bytes of a frame of MPEG audio layer III: 11 set bits, the layer, and no reserved rate. */
const isMp3Frame = ([a = 0, b = 0, c = 0]: Buffer) =>
  a === 0xff && (b & 0xe6) === 0xe2 && (c & 0xf0) !== 0xf0 && (c & 0x0c) !== 0x0c
/** The first bytes of a frame of AAC in ADTS: 12 set bits and layer 0. */
const isAdts = ([a = 0, b = 0]: Buffer) => a === 0xff && (b & 0xf6) === 0xf0

/**
 * The accepted types of foreign files: pictures, videos and sounds. SVG and HTML are excluded, because they can run
 * scripts.
 */
const signatures: readonly Signature[] = [
  { contentType: 'image/png', extension: 'png', is: starts('\x89PNG\r\n\x1a\n') },
  { contentType: 'image/jpeg', extension: 'jpg', is: starts('\xff\xd8\xff') },
  { contentType: 'image/webp', extension: 'webp', is: (head) => starts('RIFF')(head) && starts('WEBP', 8)(head) },
  { contentType: 'image/gif', extension: 'gif', is: (head) => starts('GIF87a')(head) || starts('GIF89a')(head) },
  { contentType: 'image/avif', extension: 'avif', is: brand(/^avi[fs]$/) },
  { contentType: 'audio/mp4', extension: 'm4a', is: brand(/^M4[AB] $/) },
  { contentType: 'video/quicktime', extension: 'mov', is: brand(/^qt {2}$/) },
  { contentType: 'video/mp4', extension: 'mp4', is: brand(/^(?:iso[m2-9]|mp4[12]|avc1|M4V |dash|hvc1|MSNV)$/) },
  {
    contentType: 'video/webm',
    extension: 'webm',
    is: (head) => starts('\x1a\x45\xdf\xa3')(head) && head.includes('webm'),
  },
  { contentType: 'audio/wav', extension: 'wav', is: (head) => starts('RIFF')(head) && starts('WAVE', 8)(head) },
  { contentType: 'audio/flac', extension: 'flac', is: starts('fLaC') },
  { contentType: 'audio/ogg', extension: 'ogg', is: starts('OggS') },
  { contentType: 'audio/mpeg', extension: 'mp3', is: (head) => starts('ID3')(head) || isMp3Frame(head) },
  { contentType: 'audio/aac', extension: 'aac', is: isAdts },
]

/** Detects the type of a file from its first bytes. Returns undefined for types that are not accepted. */
export function contentTypeOf(head: Buffer): string | undefined {
  return signatures.find(({ is }) => is(head))?.contentType
}

/** True if a file of this type can be a picture, a video or a sound. A sound may use a video container. */
export function isOfKind(contentType: string, kind: 'image' | 'video' | 'audio'): boolean {
  return contentType.startsWith(`${kind}/`) || (kind === 'audio' && /^video\/(?:mp4|webm)$/.test(contentType))
}

/** The file extension of a type. */
export function extensionOf(contentType: string): string | undefined {
  return signatures.find((signature) => signature.contentType === contentType)?.extension
}
