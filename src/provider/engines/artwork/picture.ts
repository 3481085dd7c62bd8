import type { FrameSize } from '../brief.ts'
import { createRandom, type Random } from '../random.ts'
import { type Caption, drawCaption } from './caption.ts'

/** The picture for a seed as SVG. Contains only numbers and colours of this module, and the escaped caption. */
export function drawPicture(size: FrameSize, seed: string, caption?: Caption): string {
  return document(size, drawHills(size, createRandom(seed)) + (caption ? drawCaption(size, caption) : ''))
}

/** The picture of a seed as a veil with the caption, to lay over a reference picture. */
export function drawVeil(
  size: FrameSize,
  seed: string,
  { strength, caption }: { strength: number; caption: Caption },
): string {
  // The references stay recognisable at strength 1.
  const veil = `<g opacity="${(0.6 * strength).toFixed(3)}">${drawHills(size, createRandom(seed))}</g>`
  return document(size, veil + drawCaption(size, caption))
}

/** The caption alone on a transparent ground, to lay over a moving picture. */
export function drawCaptionLayer(size: FrameSize, caption: Caption): string {
  return document(size, drawCaption(size, caption))
}

/** Ranges of hills before a low sun, each nearer one darker. All colours follow from one hue. */
function drawHills({ width, height }: FrameSize, random: Random): string {
  const shortSide = Math.min(width, height)
  const hue = random.whole(0, 359)
  const colour = (turn: number, saturation: number, lightness: number) =>
    `hsl(${(hue + turn + 360) % 360}, ${saturation}%, ${lightness}%)`
  const sky = `<defs><linearGradient id="sky" x1="0" y1="0" x2="0" y2="1"><stop offset="0" stop-color="${colour(0, 55, 19)}"/>
<stop offset="0.42" stop-color="${colour(22, 45, 45)}"/><stop offset="0.8" stop-color="${colour(50, 80, 78)}"/></linearGradient></defs>
<rect width="${width}" height="${height}" fill="url(#sky)"/>`

  const [sunX, sunY] = [width * random.between(0.22, 0.78), height * random.between(0.24, 0.4)]
  const sunRadius = shortSide * random.between(0.09, 0.15)
  const disc = (times: number, opacity: number) =>
    `<circle cx="${at(sunX)}" cy="${at(sunY)}" r="${at(sunRadius * times)}" fill="${colour(50, 90, 93)}" fill-opacity="${opacity}"/>`
  const sun = [disc(2.6, 0.1), disc(1.9, 0.1), disc(1.4, 0.1), disc(1, 0.95)]

  const land = [colour(10, 32, 52), colour(0, 36, 37), colour(-8, 42, 23), colour(-14, 48, 12)]
  const hills = land.map((fill, index) => {
    const shape = { base: height * (0.46 + index * 0.14), swing: shortSide * (0.15 - index * 0.012), random }
    return `<path d="${ridge({ width, height }, shape)}" fill="${fill}"/>`
  })
  return [sky, ...sun, ...hills].join('')
}

/** A sum of waves of rising frequency and falling height, closed along the foot of the picture. */
function ridge(
  { width, height }: FrameSize,
  { base, swing, random }: { base: number; swing: number; random: Random },
): string {
  const waves = [1, 2.1, 4.3, 9.1, 19].map((frequency) => ({
    frequency: frequency * random.between(0.8, 1.25),
    phase: random.between(0, 2 * Math.PI),
    height: swing / frequency ** 0.85,
  }))
  const steps = 160
  const points = Array.from({ length: steps + 1 }, (_, step) => {
    const along = step / steps
    const lifts = waves.map((wave) => wave.height * Math.sin(along * wave.frequency * 2 * Math.PI + wave.phase))
    return `${at(along * width)} ${at(base - lifts.reduce((sum, lift) => sum + lift))}`
  })
  return `M0 ${height}L${points.join('L')}L${width} ${height}Z`
}

/** Writes a coordinate with a tenth of a pixel, which is precise enough and keeps documents small. */
function at(value: number): string {
  return value.toFixed(1)
}

function document({ width, height }: FrameSize, content: string): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">${content}</svg>`
}
