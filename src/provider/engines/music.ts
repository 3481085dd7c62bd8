import { setImmediate as nextTurn } from 'node:timers/promises'
import { createRandom, type Random } from './random.ts'
import { sampleRate, type Sound } from './wav.ts'

type Note = {
  startSeconds: number
  seconds: number
  frequency: number
  gain: number
  /** From 0, left, to 1, right. */
  pan: number
  /** A pad swells and fades; a pluck is loudest at once. */
  voice: 'pad' | 'pluck'
}

/** Semitones above the root. Any chord built in thirds on one of these fits any other. */
const scales: readonly [readonly number[], ...(readonly number[])[]] = [
  [0, 2, 4, 5, 7, 9, 11],
  [0, 2, 3, 5, 7, 9, 10],
  [0, 2, 3, 5, 7, 8, 10],
  [0, 2, 4, 6, 7, 9, 11],
]

const progressions: readonly [readonly number[], ...(readonly number[])[]] = [
  [0, 4, 5, 3],
  [0, 5, 3, 4],
  [5, 3, 0, 4],
  [0, 2, 3, 5],
]

export type MusicJob = {
  seed: string
  seconds: number
  signal: AbortSignal
  onProgress?: (share: number) => Promise<void>
}

/**
 * Composes a quiet piece for the seed: slow chords, a bass and a plucked melody with an echo. Yields to the event loop
 * between notes.
 */
export async function composeMusic({ seed, seconds, signal, onProgress }: MusicJob): Promise<Sound> {
  const frames = Math.round(seconds * sampleRate)
  const sound = { sampleRate, left: new Float32Array(frames), right: new Float32Array(frames) }
  const notes = writeNotes(createRandom(`music ${seed}`), seconds)
  for (const [index, note] of notes.entries()) {
    signal.throwIfAborted()
    playNote(sound, note)
    await nextTurn()
    if (index % 16 === 0) await onProgress?.(index / notes.length)
  }
  finish(sound)
  return sound
}

function writeNotes(random: Random, seconds: number): Note[] {
  const scale = random.pick(scales)
  const progression = random.pick(progressions)
  const root = 110 * 2 ** (random.whole(0, 11) / 12)
  const beat = 60 / random.whole(66, 104)
  const pitch = (degree: number, octave = 0) => {
    const semitones = (scale[degree % scale.length] ?? 0) + 12 * (Math.floor(degree / scale.length) + octave)
    return root * 2 ** (semitones / 12)
  }
  const notes: Note[] = []
  for (let bar = 0, at = 0; at < seconds; bar++, at += beat * 4) {
    const degree = progression[bar % progression.length] ?? 0
    for (const [index, third] of [0, 2, 4].entries()) {
      notes.push({
        startSeconds: at,
        seconds: beat * 5,
        frequency: pitch(degree + third),
        gain: 0.16,
        pan: 0.25 + index * 0.25,
        voice: 'pad',
      })
    }
    notes.push({
      startSeconds: at,
      seconds: beat * 3.5,
      frequency: pitch(degree, -1),
      gain: 0.24,
      pan: 0.5,
      voice: 'pluck',
    })
    for (let eighth = 0; eighth < 8; eighth++) {
      if (random.next() < 0.35) continue
      const melody = degree + random.pick([0, 2, 4, 7, 9])
      const startSeconds = at + (eighth * beat) / 2
      const [gain, pan] = [random.between(0.1, 0.2), random.between(0.2, 0.8)]
      notes.push({ startSeconds, seconds: 1.4, frequency: pitch(melody, 1), gain, pan, voice: 'pluck' })
    }
  }
  return notes
}

function playNote({ left, right }: Sound, { startSeconds, seconds, frequency, gain, pan, voice }: Note): void {
  const first = Math.round(startSeconds * sampleRate)
  const count = Math.min(Math.round(seconds * sampleRate), left.length - first)
  const turn = (2 * Math.PI * frequency) / sampleRate
  for (let frame = 0; frame < count; frame++) {
    const through = frame / (seconds * sampleRate)
    const angle = turn * frame
    const wave =
      voice === 'pad'
        ? Math.sin(Math.PI * through) ** 2 *
          (Math.sin(angle) + 0.35 * Math.sin(angle * 2.003) + 0.6 * Math.sin(angle * 0.996))
        : Math.exp(-5 * through) *
          (1 - through) *
          Math.min(1, frame / 90) *
          (Math.sin(angle) + 0.4 * Math.exp(-9 * through) * Math.sin(3 * angle))
    left[first + frame] = (left[first + frame] ?? 0) + wave * gain * (1 - pan)
    right[first + frame] = (right[first + frame] ?? 0) + wave * gain * pan
  }
}

/** Echo from side to side, an even level, and no click at either end. */
function finish({ left, right }: Sound): void {
  const delay = Math.round(0.34 * sampleRate)
  let peak = 1e-6
  for (let frame = 0; frame < left.length; frame++) {
    if (frame >= delay) {
      left[frame] = (left[frame] ?? 0) + 0.32 * (right[frame - delay] ?? 0)
      right[frame] = (right[frame] ?? 0) + 0.32 * (left[frame - delay] ?? 0)
    }
    peak = Math.max(peak, Math.abs(left[frame] ?? 0), Math.abs(right[frame] ?? 0))
  }
  const fadeIn = 0.05 * sampleRate
  const fadeOut = Math.min(1.2 * sampleRate, left.length / 2)
  for (let frame = 0; frame < left.length; frame++) {
    const level = (0.8 / peak) * Math.min(1, frame / fadeIn, (left.length - 1 - frame) / fadeOut)
    left[frame] = (left[frame] ?? 0) * level
    right[frame] = (right[frame] ?? 0) * level
  }
}
