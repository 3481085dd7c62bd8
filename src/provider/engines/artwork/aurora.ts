import type { FrameSize } from '../frame-size.ts'
import type { Random } from '../random.ts'
import type { Palette } from './palette.ts'
import { at, stars, type Scene } from './scene.ts'

/** Curtains of northern light over a line of firs. */
export const drawAurora: Scene = (size, palette, random) => {
  const { width, height } = size
  const night = `<rect width="${width}" height="${height}" fill="${palette.land[3]}" fill-opacity="0.8"/>`
  const colours = [palette.accents[0], palette.accents[2], palette.sky[2]]
  const curtains = colours.map((colour, index) => curtain(size, random, { colour, index })).join('')
  return [night + stars(size, random, { count: 150, lowest: 0.7 }) + curtains, firs(size, palette, random)]
}

/** A curtain of many narrow rays. Each fades upwards from the hem. */
function curtain(
  { width, height }: FrameSize,
  random: Random,
  { colour, index }: { colour: string; index: number },
): string {
  const base = height * random.between(0.42, 0.62)
  const swing = height * random.between(0.04, 0.1)
  const [slow, quick] = [random.between(0.5, 1.2), random.between(2, 4)]
  const phase = random.between(0, 2 * Math.PI)
  const count = 110
  const rays = Array.from({ length: count }, (_, ray) => {
    const along = ray / count
    const lift = Math.sin(along * slow * 2 * Math.PI + phase) + 0.35 * Math.sin(along * quick * 2 * Math.PI + phase * 2)
    const tall = height * (0.26 + 0.12 * Math.sin(along * quick * 5 + phase) + random.between(0, 0.07))
    const strength = 0.45 + 0.4 * Math.sin(along * slow * 9 + phase) ** 2 + random.between(-0.1, 0.15)
    const place = `x="${at(along * width)}" y="${at(base - swing * lift - tall)}" width="${at(width / count + 0.6)}" height="${at(tall)}"`
    return `<rect ${place} fill-opacity="${strength.toFixed(2)}"/>`
  })
  return `<defs><linearGradient id="ray${index}" x1="0" y1="0" x2="0" y2="1"><stop offset="0" stop-color="${colour}" stop-opacity="0"/>
<stop offset="0.78" stop-color="${colour}" stop-opacity="0.62"/><stop offset="1" stop-color="${colour}" stop-opacity="0"/></linearGradient></defs>
<g fill="url(#ray${index})">${rays.join('')}</g>`
}

function firs({ width, height }: FrameSize, palette: Palette, random: Random): string {
  const unit = Math.min(width, height) / 40
  const rows = [
    { foot: 0.74, colour: palette.land[2], tall: 3.2 },
    { foot: 0.82, colour: palette.land[3], tall: 5 },
  ]
  const drawn = rows.map(({ foot, colour, tall }) => {
    const phase = random.between(0, 6)
    const trees: string[] = []
    for (let x = -unit; x < width + unit; x += unit * random.between(0.5, 1.25)) {
      const ground = height * foot - unit * Math.sin((x / width) * 4 + phase) * 1.5
      trees.push(fir(x, ground, unit * tall * random.between(0.6, 1.3)))
    }
    const hill = `<path d="M0 ${height}${Array.from({ length: 41 }, (_, step) => {
      const x = (step / 40) * width
      return `L${at(x)} ${at(height * foot - unit * Math.sin((x / width) * 4 + phase) * 1.5 - unit * tall * 0.22)}`
    }).join('')}L${width} ${height}Z"/>`
    return `<g fill="${colour}">${trees.join('')}${hill}</g>`
  })
  return drawn.join('')
}

/** Three stacked triangles and a bit of ground under them. */
function fir(x: number, ground: number, tall: number): string {
  const tiers = [0, 0.24, 0.48].map((from) => {
    const half = tall * (0.13 + from * 0.22)
    return `M${at(x)} ${at(ground - tall * (1 - from * 0.75))}L${at(x + half)} ${at(ground - tall * (0.62 - from))}H${at(x - half)}Z`
  })
  return `<path d="${tiers.join('')}M${at(x - tall * 0.03)} ${at(ground - tall * 0.2)}h${at(tall * 0.06)}v${at(tall * 0.3)}h${at(-tall * 0.06)}Z"/>`
}
