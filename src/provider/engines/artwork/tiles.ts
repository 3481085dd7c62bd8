import type { Random } from '../random.ts'
import { at, circle, type Scene } from './scene.ts'

/** A mosaic of quarter circles, discs and stripes, as posters of the 1920s had. */
export const drawTiles: Scene = ({ width, height }, palette, random) => {
  const tile = Math.min(width, height) / random.pick([5, 6, 7])
  const colours = [...palette.land.slice(0, 3), ...palette.accents, palette.sky[2], palette.light]
  const pick = () => colours[random.whole(0, colours.length - 1)] ?? palette.light
  const drawn: string[] = []
  for (let y = 0; y < height; y += tile) {
    for (let x = 0; x < width; x += tile) {
      drawn.push(
        `<rect x="${at(x)}" y="${at(y)}" width="${at(tile + 0.5)}" height="${at(tile + 0.5)}" fill="${pick()}"/>`,
      )
      drawn.push(motif({ x, y, tile, colour: pick(), other: pick() }, random))
    }
  }
  const discs = Array.from({ length: random.whole(1, 3) }, () => {
    const radius = tile * random.between(0.7, 1.2)
    const [x, y] = [tile * random.whole(1, Math.floor(width / tile)), tile * random.whole(1, 3)]
    return (
      circle(x, y, radius, palette.land[3], 0.92) +
      circle(x, y, radius * 0.62, pick()) +
      circle(x, y, radius * 0.28, palette.light)
    )
  }).join('')
  return [drawn.join(''), discs]
}

type Motif = { x: number; y: number; tile: number; colour: string; other: string }

function motif({ x, y, tile, colour, other }: Motif, random: Random): string {
  const turn = `rotate(${random.whole(0, 3) * 90} ${at(x + tile / 2)} ${at(y + tile / 2)})`
  const quarter = (radius: number, fill: string) => {
    const arc = `a${at(radius)} ${at(radius)} 0 0 1 ${at(-radius)} ${at(radius)}`
    return `<path d="M${at(x)} ${at(y)}h${at(radius)}${arc}Z" fill="${fill}"/>`
  }
  switch (random.whole(0, 4)) {
    case 0:
      return `<g transform="${turn}">${quarter(tile, colour)}${quarter(tile * 0.5, other)}</g>`
    case 1:
      return (
        circle(x + tile / 2, y + tile / 2, tile * 0.36, colour) + circle(x + tile / 2, y + tile / 2, tile * 0.14, other)
      )
    case 2:
      return `<path d="M${at(x)} ${at(y)}h${at(tile)}L${at(x)} ${at(y + tile)}Z" fill="${colour}" transform="${turn}"/>`
    case 3: {
      const stripe = (index: number) =>
        `<rect x="${at(x)}" y="${at(y + (index * tile) / 3)}" width="${at(tile)}" height="${at(tile / 6)}"/>`
      return `<g fill="${colour}" transform="${turn}">${[0, 1, 2].map(stripe).join('')}</g>`
    }
    default:
      return `<g transform="${turn}">${quarter(tile, colour)}</g>`
  }
}
