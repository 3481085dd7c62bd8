import type { FrameSize } from '../frame-size.ts'
import type { Random } from '../random.ts'
import { at, circle, type Scene } from './scene.ts'

/** Ranges of hills before a low sun, each nearer one darker. */
export const drawRidges: Scene = (size, palette, random) => {
  const { width, height } = size
  const shortSide = Math.min(width, height)
  const sunX = width * random.between(0.22, 0.78)
  const sunY = height * random.between(0.24, 0.4)
  const sunRadius = shortSide * random.between(0.09, 0.15)
  const halos = [2.6, 1.9, 1.4].map((times) => circle(sunX, sunY, sunRadius * times, palette.light, 0.1))
  const hills = palette.land.map((colour, index) => {
    const path = ridge(size, {
      base: height * (0.46 + index * 0.14),
      swing: shortSide * (0.15 - index * 0.012),
      random,
    })
    return `<path d="${path}" fill="${colour}"/>`
  })
  const sun = circle(sunX, sunY, sunRadius, palette.light, 0.95)
  return [[...halos, sun, flock(size, random), hills[0]].join(''), hills.slice(1).join('')]
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
    const lift = waves.reduce(
      (sum, wave) => sum + wave.height * Math.sin(along * wave.frequency * 2 * Math.PI + wave.phase),
      0,
    )
    return `${at(along * width)} ${at(base - lift)}`
  })
  return `M0 ${height}L${points.join('L')}L${width} ${height}Z`
}

function flock({ width, height }: FrameSize, random: Random): string {
  const span = Math.min(width, height) * random.between(0.01, 0.018)
  const fromX = width * random.between(0.15, 0.75)
  const fromY = height * random.between(0.1, 0.24)
  return Array.from({ length: random.whole(0, 7) }, (_, index) => {
    const x = fromX + span * (index * 1.9 + random.between(-0.5, 0.5))
    const y = fromY + span * (Math.abs(index - 2) * 1.1 + random.between(-0.4, 0.4))
    const wing = `q${at(span / 2)} ${at(-span * 0.7)} ${at(span)} 0`
    const wings = `M${at(x)} ${at(y)}q${at(-span / 2)} ${at(-span * 0.7)} ${at(-span)} 0m${at(span)} 0${wing}`
    return `<path d="${wings}" fill="none" stroke="#101020" stroke-opacity="0.6" stroke-width="${at(span * 0.16)}" stroke-linecap="round"/>`
  }).join('')
}
