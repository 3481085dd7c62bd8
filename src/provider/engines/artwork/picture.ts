import type { FrameSize } from '../frame-size.ts'
import { createRandom, type Random } from '../random.ts'
import { drawCaption } from './caption.ts'
import { pickPalette, type Palette } from './palette.ts'
import { drawRidges } from './ridges.ts'

type Scene = (size: FrameSize, palette: Palette, random: Random) => string

const scenes: readonly [Scene, ...Scene[]] = [drawRidges]

/** The picture that belongs to a seed, as SVG without any text. Only numbers and our own colours go into it. */
export function drawPicture(size: FrameSize, seed: string): string {
  const random = createRandom(seed)
  const palette = pickPalette(random)
  const scene = random.pick(scenes)
  const [high, middle, low] = palette.sky
  const sky = `<defs><linearGradient id="sky" x1="0" y1="0" x2="0" y2="1"><stop offset="0" stop-color="${high}"/>
<stop offset="0.5" stop-color="${middle}"/><stop offset="0.92" stop-color="${low}"/></linearGradient></defs>
<rect width="${size.width}" height="${size.height}" fill="url(#sky)"/>`
  return document(size, sky + scene(size, palette, random))
}

/** The picture with the prompt written on it. */
export function drawCaptionedPicture(size: FrameSize, seed: string, caption: { prompt: string; credit: string }): string {
  const picture = drawPicture(size, seed)
  return picture.replace(/<\/svg>$/, () => `${drawCaption(size, caption.prompt, caption.credit)}</svg>`)
}

/** The caption alone on a transparent ground, to lay over a moving picture. */
export function drawCaptionLayer(size: FrameSize, caption: { prompt: string; credit: string }): string {
  return document(size, drawCaption(size, caption.prompt, caption.credit))
}

function document({ width, height }: FrameSize, content: string): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">${content}</svg>`
}
