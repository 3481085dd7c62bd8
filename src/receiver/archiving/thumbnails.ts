import sharp from 'sharp'

/** As large as a picture may be for us to decode it, which takes up to 4 bytes for each: more is a bomb, or nothing for a page. */
const maxPixels = 40_000_000
const edgePixels = 320
const withinSeconds = 20
/** Types that are decoded here; of others there is no thumbnail. */
const decoded = new Set(['image/png', 'image/jpeg', 'image/webp', 'image/gif', 'image/avif'])

export type Thumbnail = { kind: 'made'; bytes: Buffer } | { kind: 'none'; why: string } | { kind: 'damaged'; why: string }

/** One at a time: decoding takes memory by the pixel. */
let last: Promise<unknown> = Promise.resolve()

/** A small picture of a picture, which is decoded whole by that: `damaged` is what its header promises and its rows do not keep. */
export function thumbnailOf({ path, contentType }: { path: string; contentType: string }): Promise<Thumbnail> {
  if (!decoded.has(contentType)) return Promise.resolve({ kind: 'none', why: 'no picture that is decoded here' })
  const made = last.then(() => make(path))
  last = made
  return made
}

async function make(path: string): Promise<Thumbnail> {
  try {
    // Of the header alone: what it says is too much is not decoded.
    const { width, height } = await sharp(path, { limitInputPixels: false }).metadata()
    if (width * height > maxPixels) return { kind: 'none', why: `it has ${width} × ${height} pixels` }
    const picture = sharp(path, { limitInputPixels: maxPixels, failOn: 'truncated', sequentialRead: true })
    const small = picture.autoOrient().resize(edgePixels, edgePixels, { fit: 'inside', withoutEnlargement: true })
    return { kind: 'made', bytes: await small.timeout({ seconds: withinSeconds }).webp({ quality: 80 }).toBuffer() }
  } catch (error) {
    const why = error instanceof Error ? error.message.slice(0, 200) : 'it cannot be decoded'
    return /timeout/i.test(why) ? { kind: 'none', why } : { kind: 'damaged', why }
  }
}
