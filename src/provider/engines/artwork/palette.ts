import type { Random } from '../random.ts'

/** Colours of one picture: the sky from top to horizon, the light in it, and the land from far to near. */
export type Palette = {
  sky: readonly [string, string, string]
  light: string
  land: readonly [string, string, string, string]
  accents: readonly [string, string, string]
}

/** Derives all colours from one hue: a dark sky over a warmer horizon, land of the sky's hue, accents across from it. */
export function pickPalette(random: Random): Palette {
  const hue = random.whole(0, 359)
  const colour = (turn: number, saturation: number, lightness: number) =>
    `hsl(${(hue + turn + 360) % 360}, ${saturation}%, ${lightness}%)`
  return {
    sky: [colour(0, 55, 19), colour(22, 45, 45), colour(50, 80, 78)],
    light: colour(50, 90, 93),
    land: [colour(10, 32, 52), colour(0, 36, 37), colour(-8, 42, 23), colour(-14, 48, 12)],
    accents: [colour(180, 75, 66), colour(60, 85, 68), colour(215, 65, 72)],
  }
}
