import { describe, expect, it } from 'vitest'
import { colourOf, colours, film, tone } from './clips.ts'
import { frameAt, probe, toneIn } from './probe.ts'
import { disc, likeness, referenceOf } from './reference-files.ts'

// test/release/video-references.test.ts has the other shapes, lengths and numbers of references.

describe('references of a clip', () => {
  it("share the clip's time in input order, first frame and length included", async () => {
    const video = await colours([
      ['blue', 0.4],
      ['green', 0.2],
    ])
    const references = [await referenceOf(await disc(), 'image_url'), await referenceOf(video, 'video_urls')]
    const { file, duration } = await film(references, { duration: 2 })
    const { frames, seconds } = await probe(file)
    expect([duration, frames]).toEqual([2, 48])
    expect(seconds).toBeCloseTo(2, 1)
    expect(await likeness(await frameAt(file, 0), await disc({ width: 854, height: 480 }))).toBeGreaterThan(0.5)
    // The second half is the video's: blue, then green, which is continued to the end.
    const shown = []
    for (const at of [1.1, 1.3, 1.5, 1.9]) shown.push(await colourOf(await frameAt(file, at)))
    expect(shown).toEqual(['blue', 'blue', 'green', 'green'])
  })
})

describe('reference sounds', () => {
  it('form the sound track if one is requested, in sequence and repeated', async () => {
    const references = [
      await referenceOf(tone(440, 0.5), 'audio_urls', 0),
      await referenceOf(tone(1000, 0.5), 'audio_urls', 1),
    ]
    const { file } = await film(references, { generate_audio: true, duration: 2 })
    // Of two tones in turn, each is a quarter of the whole.
    expect(await toneIn(file, 440)).toBeGreaterThan(0.2)
    expect(await toneIn(file, 1000)).toBeGreaterThan(0.2)
    expect(await toneIn(file, 700)).toBeLessThan(0.01)
    expect((await probe(file)).audio).toMatch(/^aac .*44100 Hz, stereo/)
  })
})
