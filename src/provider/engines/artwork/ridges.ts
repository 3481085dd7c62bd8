import type { FrameSize } from '../frame-size.ts'
import type { Random } from '../random.ts'
import type { Palette } from './palette.ts'

/** Ranges of hills before a low sun, each nearer one darker. */
export function drawRidges({ width, height }: FrameSize, palette: Palette, random: Random): string {
  const shortSide = Math.min(width, height)
  const sunX = width * random.between(0.22, 0.78)
  const sunY = height * random.between(0.24, 0.42)
  const sunRadius = shortSide * random.between(0.09, 0.15)
  const halos = [2.6, 1.9, 1.4].map((times) => circle(sunX, sunY, sunRadius * times, palette.light, 0.1))
  const ridges = palette.land.map((colour, index) => {
    const base = height * (0.44 + index * 0.145)
    const swing = shortSide * (0.15 - index * 0.012)
    return `<path d="${ridge({ width, height }, base, swing, random)}" fill="${colour}"/>`
  })
  return [...halos, circle(sunX, sunY, sunRadius, palette.light, 0.95), ...birds(width, height, random), ...ridges].join('')
}

const circle = (x: number, y: number, radius: number, fill: string, opacity: number) =>
  `<circle cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="${radius.toFixed(1)}" fill="${fill}" fill-opacity="${opacity}"/>`

/** A sum of waves of rising frequency and falling height, closed along the foot of the picture. */
function ridge({ width, height }: FrameSize, base: number, swing: number, random: Random): string {
  const waves = [1, 2.1, 4.3, 9.1, 19].map((frequency) => ({
    frequency: frequency * random.between(0.8, 1.25),
    phase: random.between(0, 2 * Math.PI),
    height: swing / frequency ** 0.85,
  }))
  const steps = 160
  const points = Array.from({ length: steps + 1 }, (_, step) => {
    const along = step / steps
    const lift = waves.reduce((sum, wave) => sum + wave.height * Math.sin(along * wave.frequency * 2 * Math.PI + wave.phase), 0)
    return `${(along * width).toFixed(1)} ${(base - lift).toFixed(1)}`
  })
  return `M0 ${height}L${points.join('L')}L${width} ${height}Z`
}

function birds(width: number, height: number, random: Random): string[] {
  return Array.from({ length: random.whole(0, 6) }, () => {
    const x = width * random.between(0.1, 0.9)
    const y = height * random.between(0.1, 0.36)
    const span = Math.min(width, height) * random.between(0.008, 0.018)
    const wings = `M${x.toFixed(1)} ${y.toFixed(1)}q${(-span / 2).toFixed(1)} ${(-span * 0.7).toFixed(1)} ${(-span).toFixed(1)} 0` +
      `m${span.toFixed(1)} 0q${(span / 2).toFixed(1)} ${(-span * 0.7).toFixed(1)} ${span.toFixed(1)} 0`
    return `<path d="${wings}" fill="none" stroke="#101020" stroke-opacity="0.55" stroke-width="${(span * 0.16).toFixed(2)}" stroke-linecap="round"/>`
  })
}
