import type { FrameSize } from '../frame-size.ts'
import type { Random } from '../random.ts'
import type { Palette } from './palette.ts'

/**
 * Draws one kind of picture as SVG layers from far to near, to lie over a sky. A clip moves the layers at different
 * speeds, so only the last may end inside the frame's sides.
 */
export type Scene = (size: FrameSize, palette: Palette, random: Random) => readonly [string, string]

/** Writes a coordinate with a tenth of a pixel, which is precise enough and keeps documents small. */
export function at(value: number): string {
  return value.toFixed(1)
}

export function circle(x: number, y: number, radius: number, fill: string, opacity = 1): string {
  return `<circle cx="${at(x)}" cy="${at(y)}" r="${at(radius)}" fill="${fill}" fill-opacity="${opacity}"/>`
}
