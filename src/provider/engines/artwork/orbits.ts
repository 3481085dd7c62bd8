import type { FrameSize } from '../frame-size.ts'
import type { Random } from '../random.ts'
import type { Palette } from './palette.ts'
import { at, circle, stars, type Scene } from './scene.ts'

/** A ringed planet with its moons over a field of stars. */
export const drawOrbits: Scene = (size, palette, random) => {
  const { width, height } = size
  const shortSide = Math.min(width, height)
  const clouds = Array.from({ length: 7 }, (_, index) => {
    const colour = random.pick([palette.sky[1], palette.sky[2], palette.accents[0], palette.accents[2]])
    const place = `cx="${at(random.between(0, width))}" cy="${at(random.between(0, height))}" r="${at(shortSide * random.between(0.35, 0.75))}"`
    return `<radialGradient id="cloud${index}"><stop offset="0" stop-color="${colour}" stop-opacity="0.3"/>
<stop offset="1" stop-color="${colour}" stop-opacity="0"/></radialGradient><circle ${place} fill="url(#cloud${index})"/>`
  })
  const night = `<rect width="${width}" height="${height}" fill="${palette.land[3]}" fill-opacity="0.76"/>`
  return [night + clouds.join('') + stars(size, random, { count: 260, lowest: 1 }), planet(size, palette, random)]
}

function planet({ width, height }: FrameSize, palette: Palette, random: Random): string {
  const shortSide = Math.min(width, height)
  const x = width * random.between(0.36, 0.64)
  const y = height * random.between(0.34, 0.44)
  const radius = shortSide * random.between(0.17, 0.24)
  const tilt = random.whole(-28, 28)
  const bands = Array.from({ length: 9 }, (_, index) => {
    const top = y - radius + (index * 2 * radius) / 9
    const colour = random.pick([palette.land[0], palette.land[1], palette.sky[2], palette.accents[1]])
    const box = `x="${at(x - radius)}" y="${at(top)}" width="${at(2 * radius)}" height="${at((2 * radius) / 9 + 1)}"`
    return `<rect ${box} fill="${colour}" fill-opacity="0.75"/>`
  }).join('')
  const moons = Array.from({ length: random.whole(1, 4) }, () => {
    const angle = random.between(0, 2 * Math.PI)
    const away = radius * random.between(2.3, 2.9)
    return circle(
      x + away * Math.cos(angle),
      y + away * Math.sin(angle) * 0.6,
      radius * random.between(0.05, 0.13),
      palette.light,
      0.95,
    )
  }).join('')
  const band = { x, y, radius, colour: palette.light }
  // The upper half of the rings lies behind the globe, the lower half before it.
  return `<defs><clipPath id="globe"><circle cx="${at(x)}" cy="${at(y)}" r="${at(radius)}"/></clipPath>
<radialGradient id="day" cx="0.32" cy="0.3" r="0.85"><stop offset="0" stop-color="#ffffff" stop-opacity="0.28"/>
<stop offset="0.55" stop-color="#000010" stop-opacity="0.12"/><stop offset="1" stop-color="#000010" stop-opacity="0.82"/></radialGradient></defs>
<g transform="rotate(${tilt} ${at(x)} ${at(y)})">${rings(band, 1)}${circle(x, y, radius, palette.sky[1])}
<g clip-path="url(#globe)">${bands}</g><circle cx="${at(x)}" cy="${at(y)}" r="${at(radius)}" fill="url(#day)"/>${rings(band, 0)}</g>${moons}`
}

type Rings = { x: number; y: number; radius: number; colour: string }

/** One half of the rings: of the two arcs between the same points, the upper with sweep 1 and the lower with 0. */
function rings({ x, y, radius, colour }: Rings, sweep: 0 | 1): string {
  const shares = [
    { away: 1.45, wide: 0.07 },
    { away: 1.62, wide: 0.11 },
    { away: 1.74, wide: 0.03 },
    { away: 1.98, wide: 0.08 },
  ]
  const arcs = shares.map(({ away, wide }) => {
    const across = radius * away
    const arc = `M${at(x - across)} ${at(y)}A${at(across)} ${at(across * 0.3)} 0 0 ${sweep} ${at(x + across)} ${at(y)}`
    return `<path d="${arc}" stroke-width="${at(radius * wide)}"/>`
  })
  return `<g fill="none" stroke="${colour}" stroke-opacity="0.78">${arcs.join('')}</g>`
}
