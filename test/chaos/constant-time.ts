import crypto, { randomBytes } from 'node:crypto'
import { syncBuiltinESMExports } from 'node:module'
import { sign } from '../../src/wire/signature.ts'
import { verify } from '../support/verify.ts'

/*
 * Tests, as dudect does, that the verification takes no longer for a signature that is nearly right (Reparaz, Balasch,
 * Verbauwhede: "Dude, is my code constant time?"): two classes of input in random order, Welch's t of their times,
 * whole and cropped at many percentiles. A separate program: `node test/chaos/constant-time.ts [samples]`.
 */

const limit = 4.5
const signingSecret = 'whsec_of_the_measurement'
// Under several names, so that each verification compares often.
const secrets = ['one', 'two', 'three', 'four'].map((name) => ({ name, signingSecret }))
const now = 1_767_225_600
const candidates = 8
const batch = 10_000
const crops = 100
const warmUp = 20_000

type Input = { isNear: boolean; body: Buffer; header: string }

/**
 * Both classes are wrong, random to look at, and made alike: eight digests that differ in their last byte only. Those
 * of the one are right in their first 31 bytes, those of the other in none.
 */
function makeInput(): Input {
  const isNear = Math.random() < 0.5
  const body = randomBytes(16)
  const right = sign(body, signingSecret, now).slice(-64)
  // Made for both, so that what lies around in memory is alike as well.
  const other = randomBytes(32).toString('hex')
  const from = isNear ? right : other
  const last = Number.parseInt(right.slice(-2), 16)
  const digests = Array.from(
    { length: candidates },
    (_, at) => `v1=${from.slice(0, 62)}${((last + 1 + at) % 256).toString(16).padStart(2, '0')}`,
  )
  // One flat string, like the headers that arrive.
  return { isNear, body, header: Buffer.from(`t=${now},${digests.join(',')}`, 'latin1').toString('latin1') }
}

type Sample = { isNear: boolean; ns: number }

function measure(count: number): Sample[] {
  const samples: Sample[] = []
  while (samples.length < count) {
    const inputs = Array.from({ length: Math.min(batch, count - samples.length) }, makeInput)
    for (const { isNear, body, header } of inputs) {
      const started = process.hrtime.bigint()
      const { ok } = verify(body, header, secrets, now)
      const ns = Number(process.hrtime.bigint() - started)
      if (ok) throw new Error('a wrong signature was taken for right')
      samples.push({ isNear, ns })
    }
  }
  return samples
}

function welch(samples: readonly Sample[]): number {
  const of = (isNear: boolean) => {
    const times = samples.filter((one) => one.isNear === isNear).map(({ ns }) => ns)
    const mean = times.reduce((sum, ns) => sum + ns, 0) / times.length
    return {
      n: times.length,
      mean,
      variance: times.reduce((sum, ns) => sum + (ns - mean) ** 2, 0) / (times.length - 1),
    }
  }
  const [near, far] = [of(true), of(false)]
  return (near.mean - far.mean) / Math.sqrt(near.variance / near.n + far.variance / far.n)
}

/** The t that is farthest from nothing: of all samples, and of those below each of dudect's percentiles. */
function farthestT(samples: readonly Sample[]): number {
  const times = samples.map(({ ns }) => ns).toSorted((a, b) => a - b)
  const thresholds = Array.from(
    { length: crops },
    (_, at) => times[Math.floor(times.length * (1 - 0.5 ** ((10 * (at + 1)) / crops)))] ?? Infinity,
  )
  const ts = [Infinity, ...thresholds]
    .map((threshold) => samples.filter(({ ns }) => ns <= threshold))
    .flatMap((kept) => (kept.length > 5000 ? [welch(kept)] : []))
  return ts.reduce((most, t) => (Math.abs(t) > Math.abs(most) ? t : most), 0)
}

const count = Number(process.argv[2] ?? 300_000)
const { timingSafeEqual } = crypto

function bytesOf(view: NodeJS.ArrayBufferView): Uint8Array {
  return view as Uint8Array
}

function use(compare: typeof timingSafeEqual): void {
  crypto.timingSafeEqual = compare
  syncBuiltinESMExports()
  measure(warmUp)
}

// The control: the same code with nothing changed but how it compares: `===`, byte by byte, until two differ. (`===` of
// two strings leaks too, but so little that its leak drowns in the noise of a busy machine.)
use((a, b) => bytesOf(a).every((byte, at) => byte === bytesOf(b)[at]))
const control = farthestT(measure(count))

use(timingSafeEqual)
const t = farthestT(measure(count))

process.stdout.write(
  `${JSON.stringify({ samples: count, t: Number(t.toFixed(2)), control: Number(control.toFixed(2)), limit })}\n`,
)
process.exit(Math.abs(t) < limit && Math.abs(control) >= limit ? 0 : 1)
