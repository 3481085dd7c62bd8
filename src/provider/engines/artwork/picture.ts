import type { FrameSize } from '../frame-size.ts'
import { createRandom } from '../random.ts'
import { drawCaption } from './caption.ts'
import { pickPalette } from './palette.ts'
import { drawRidges } from './ridges.ts'
import type { Scene } from './scene.ts'
import { drawTiles } from './tiles.ts'

const scenes: readonly [Scene, ...Scene[]] = [drawRidges, drawTiles]

/** The text on a picture: the prompt, and a small line below it. */
export type Caption = { prompt: string; credit: string }

/**
 * The picture for a seed as two SVG layers: the far one is opaque, the near one is not. Contains only numbers and
 * colours of this module.
 */
export function drawLayers(size: FrameSize, seed: string): readonly [string, string] {
  const random = createRandom(seed)
  const palette = pickPalette(random)
  const [far, near] = random.pick(scenes)(size, palette, random)
  const [high, middle, low] = palette.sky
  const sky = `<defs><linearGradient id="sky" x1="0" y1="0" x2="0" y2="1"><stop offset="0" stop-color="${high}"/>
<stop offset="0.42" stop-color="${middle}"/><stop offset="0.8" stop-color="${low}"/></linearGradient></defs>
<rect width="${size.width}" height="${size.height}" fill="url(#sky)"/>`
  return [document(size, sky + far), document(size, near)]
}

/** Both layers and the caption as one document. */
export function drawPicture(size: FrameSize, seed: string, caption: Caption): string {
  const content = [...drawLayers(size, seed), drawCaptionLayer(size, caption)]
  return document(size, content.join(''))
}

/** The picture of a seed as a veil with the caption, to lay over a reference picture. */
export function drawVeil(
  size: FrameSize,
  seed: string,
  { strength, caption }: { strength: number; caption: Caption },
): string {
  // The references stay recognisable at strength 1.
  const veil = `<g opacity="${(0.6 * strength).toFixed(3)}">${drawLayers(size, seed).join('')}</g>`
  return document(size, veil + drawCaptionLayer(size, caption))
}

/** The caption alone on a transparent ground, to lay over a moving picture. */
export function drawCaptionLayer(size: FrameSize, { prompt, credit }: Caption): string {
  return document(size, drawCaption(size, prompt, credit))
}

function document({ width, height }: FrameSize, content: string): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">${content}</svg>`
}
