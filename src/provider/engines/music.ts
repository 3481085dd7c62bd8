import { setImmediate as nextTurn } from 'node:timers/promises'
import { createRandom } from './random.ts'

/** Semitones above the root: major and minor. */
const scales: readonly [readonly number[], ...(readonly number[])[]] = [
  [0, 2, 4, 5, 7, 9, 11],
  [0, 2, 3, 5, 7, 8, 10],
]
/** The degree on which the chord of each bar is built. */
const progression = [0, 5, 3, 4]

type MusicJob = { seed: string; seconds: number; signal: AbortSignal }

/**
 * Composes a quiet piece for the seed, as 16-bit stereo PCM: slow chords under a plucked melody. Yields to the event
 * loop between bars.
 */
export async function composeMusic({ seed, seconds, signal }: MusicJob): Promise<Buffer> {
  const random = createRandom(`music ${seed}`)
  const scale = random.pick(scales)
  const root = 110 * 2 ** (random.whole(0, 11) / 12)
  const beat = 60 / random.whole(66, 104)
  const frequencyOf = (degree: number) =>
    root * 2 ** ((scale[degree % scale.length] ?? 0) / 12 + Math.floor(degree / scale.length))

  const sound = new Float32Array(Math.round(seconds * sampleRate))
  for (let bar = 0; bar * 4 * beat < seconds; bar += 1) {
    signal.throwIfAborted()
    const at = bar * 4 * beat
    const degree = progression[bar % progression.length] ?? 0
    for (const third of [0, 2, 4])
      pluck(sound, { at, seconds: beat * 5, frequency: frequencyOf(degree + third), gain: 0.2 })
    for (let eighth = 0; eighth < 8; eighth += 1) {
      const frequency = frequencyOf(7 + degree + random.pick([0, 2, 4, 7, 9]))
      const gain = Math.max(0, random.between(-0.1, 0.2))
      pluck(sound, { at: at + (eighth * beat) / 2, seconds: 1.4, frequency, gain })
    }
    await nextTurn()
  }
  return finish(sound)
}

type Note = { at: number; seconds: number; frequency: number; gain: number }

/** Adds a note that is loudest at once and then fades. */
function pluck(sound: Float32Array, { at, seconds, frequency, gain }: Note): void {
  const first = Math.round(at * sampleRate)
  const count = Math.min(Math.round(seconds * sampleRate), sound.length - first)
  for (let frame = 0; frame < count; frame += 1) {
    const through = frame / (seconds * sampleRate)
    const angle = (2 * Math.PI * frequency * frame) / sampleRate
    const loudness = gain * Math.exp(-5 * through) * (1 - through) * Math.min(1, frame / 90)
    sound[first + frame]! += loudness * (Math.sin(angle) + 0.4 * Math.exp(-9 * through) * Math.sin(3 * angle))
  }
}

/** Evens the level, fades both ends, so that they do not click, and writes the same samples to both sides. */
function finish(sound: Float32Array): Buffer {
  const peak = sound.reduce((most, sample) => Math.max(most, Math.abs(sample)), 1e-6)
  const [fadeIn, fadeOut] = [0.05 * sampleRate, Math.min(1.2 * sampleRate, sound.length / 2)]
  const pcm = Buffer.alloc(sound.length * bytesPerFrame)
  for (const [frame, sample] of sound.entries()) {
    const level = (0.8 / peak) * Math.min(1, frame / fadeIn, (sound.length - 1 - frame) / fadeOut)
    for (const side of [0, 2]) pcm.writeInt16LE(Math.round(sample * level * 32_767), frame * bytesPerFrame + side)
  }
  return pcm
}

/** Frames per second of the sounds that the engines make. */
export const sampleRate = 44_100
/** A frame of 16-bit stereo. */
export const bytesPerFrame = 4

/** RIFF WAVE of 16-bit stereo PCM at `sampleRate`. */
export function encodeWav(pcm: Buffer): Buffer {
  const header = Buffer.alloc(44)
  header.write('RIFF', 0, 'latin1')
  header.writeUInt32LE(36 + pcm.length, 4)
  header.write('WAVEfmt ', 8, 'latin1')
  header.writeUInt32LE(16, 16)
  header.writeUInt16LE(1, 20)
  header.writeUInt16LE(2, 22)
  header.writeUInt32LE(sampleRate, 24)
  header.writeUInt32LE(sampleRate * bytesPerFrame, 28)
  header.writeUInt16LE(bytesPerFrame, 32)
  header.writeUInt16LE(16, 34)
  header.write('data', 36, 'latin1')
  header.writeUInt32LE(pcm.length, 40)
  return Buffer.concat([header, pcm])
}
