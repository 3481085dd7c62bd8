import fs from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import { createLocalAudioEngine } from '../../../src/provider/engines/local-audio.ts'
import { composeMusic, encodeWav } from '../../../src/provider/engines/music.ts'
import { audioOf, fileOf, filesBelow, runEngine } from '../../provider/engines/engine-run.ts'
import { probe } from '../../provider/engines/probe.ts'

const engine = createLocalAudioEngine()
const never = new AbortController().signal

describe('local-audio', () => {
  it.each([
    [{ duration: 5 }, /^pcm_s16le .*44100 Hz, stereo/, 0],
    [{ duration: 10, output_format: 'mp3' }, /^mp3, 44100 Hz, stereo/, 0.06],
  ])('makes a sound file that plays, for %o', async (input, codec, tolerance) => {
    const { output, mediaDir, reported } = await runEngine(engine, { input: { prompt: 'a quiet bay', ...input } })
    const { url, duration } = audioOf(output)
    const probed = await probe(fileOf(mediaDir, url))
    expect(probed.audio).toMatch(codec)
    expect(duration).toBe(input.duration)
    expect(Math.abs(probed.seconds - input.duration)).toBeLessThanOrEqual(tolerance)
    expect(await filesBelow(mediaDir)).toHaveLength(1)
    expect(reported.at(-1)).toMatchObject({ progress: 100 })
  })

  it('returns the same bytes for the same input, and different bytes for another', async () => {
    const bytesOf = async (prompt: string) => {
      const { output, mediaDir } = await runEngine(engine, { input: { prompt, duration: 5 } })
      return fs.readFile(fileOf(mediaDir, audioOf(output).url))
    }
    const first = await bytesOf('a quiet bay')
    expect(first.equals(await bytesOf('a quiet bay'))).toBe(true)
    expect(first.equals(await bytesOf('a loud bay'))).toBe(false)
  })
})

describe('composeMusic', () => {
  it('is neither silent nor clipped, and starts and ends without a click', async () => {
    const pcm = await composeMusic({ seed: 'a', seconds: 6, signal: never })
    const samples = Array.from({ length: pcm.length / 2 }, (_, at) => pcm.readInt16LE(at * 2) / 32_767)
    expect(samples).toHaveLength(2 * 6 * 44_100)
    const loudness = Math.sqrt(samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length)
    expect(loudness).toBeGreaterThan(0.03)
    expect(samples.reduce((peak, sample) => Math.max(peak, Math.abs(sample)), 0)).toBeLessThanOrEqual(0.81)
    expect(Math.abs(samples[0] ?? 1)).toBeLessThan(0.001)
    expect(Math.abs(samples.at(-1) ?? 1)).toBeLessThan(0.001)
  })

  it('stops when it is aborted', async () => {
    await expect(
      composeMusic({ seed: 'a', seconds: 30, signal: AbortSignal.abort(new Error('taken away')) }),
    ).rejects.toThrow('taken away')
  })

  it('yields to the event loop while it works', async () => {
    let turns = 0
    const timer = setInterval(() => turns++, 1)
    await composeMusic({ seed: 'a', seconds: 20, signal: never })
    clearInterval(timer)
    expect(turns).toBeGreaterThan(3)
  })
})

describe('encodeWav', () => {
  it('writes a canonical header before the samples', () => {
    const wav = encodeWav(Buffer.from('00000040ff7f01800180ff7f', 'hex'))
    expect(wav.toString('hex')).toBe(
      [
        '52494646' + '30000000' + '57415645', // RIFF, 48 bytes follow, WAVE
        '666d7420' + '10000000' + '0100' + '0200', // fmt, PCM, 2 channels
        '44ac0000' + '10b10200' + '0400' + '1000', // 44,100 Hz, 176,400 bytes a second, 4 a frame, 16 bits
        '64617461' + '0c000000',
        '00000040' + 'ff7f0180' + '0180ff7f',
      ].join(''),
    )
  })
})
