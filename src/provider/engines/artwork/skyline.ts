import type { FrameSize } from '../frame-size.ts'
import type { Random } from '../random.ts'
import { at, circle, stars, type Scene } from './scene.ts'

/** Two rows of towers at night, some windows lit, before a large moon. */
export const drawSkyline: Scene = (size, palette, random) => {
  const { width, height } = size
  const shortSide = Math.min(width, height)
  const moon = {
    x: width * random.between(0.2, 0.8),
    y: height * random.between(0.2, 0.36),
    radius: shortSide * random.between(0.1, 0.17),
  }
  const glow = [1.9, 1.4].map((times) => circle(moon.x, moon.y, moon.radius * times, palette.light, 0.09)).join('')
  const far = row(size, random, { top: 0.34, foot: 0.62, colour: palette.land[1], opacity: 0.75, lit: undefined })
  const near = row(size, random, { top: 0.4, foot: 0.8, colour: palette.land[3], opacity: 1, lit: palette.accents })
  return [
    stars(size, random, { count: 90, lowest: 0.4 }) +
      glow +
      circle(moon.x, moon.y, moon.radius, palette.light, 0.96) +
      far,
    near,
  ]
}

type Row = {
  top: number
  foot: number
  colour: string
  opacity: number
  lit: readonly [string, string, string] | undefined
}

function row({ width, height }: FrameSize, random: Random, { top, foot, colour, opacity, lit }: Row): string {
  const unit = Math.min(width, height) / 48
  const towers: string[] = []
  for (let x = -unit; x < width;) {
    const columns = random.whole(3, 7)
    const across = unit * columns
    const from = height * random.between(top, foot)
    towers.push(`<rect x="${at(x)}" y="${at(from)}" width="${at(across + 0.5)}" height="${at(height - from)}"/>`)
    if (random.next() < 0.3) towers.push(mast(x + across / 2, from, unit))
    if (lit)
      towers.push(
        windows({ x, y: from, columns, rows: Math.floor((height - from) / unit / 1.5) - 1, unit }, lit, random),
      )
    x += across + (random.next() < 0.4 ? unit * random.between(0.3, 1.4) : 0)
  }
  return `<g fill="${colour}" fill-opacity="${opacity}">${towers.join('')}</g>`
}

const mast = (x: number, y: number, unit: number) =>
  `<rect x="${at(x - unit * 0.1)}" y="${at(y - unit * 2.4)}" width="${at(unit * 0.2)}" height="${at(unit * 2.5)}"/>`

type Facade = { x: number; y: number; columns: number; rows: number; unit: number }

function windows(
  { x, y, columns, rows, unit }: Facade,
  lit: readonly [string, string, string],
  random: Random,
): string {
  const share = random.between(0.08, 0.4)
  const drawn: string[] = []
  for (let line = 0; line < rows; line++) {
    for (let column = 0; column < columns; column++) {
      if (random.next() > share) continue
      const place = `x="${at(x + unit * (column + 0.28))}" y="${at(y + unit * (line * 1.5 + 0.7))}"`
      const colour = random.next() < 0.75 ? '#ffe3a1' : random.pick(lit)
      drawn.push(
        `<rect ${place} width="${at(unit * 0.46)}" height="${at(unit * 0.7)}" fill="${colour}" fill-opacity="0.9"/>`,
      )
    }
  }
  return drawn.join('')
}
