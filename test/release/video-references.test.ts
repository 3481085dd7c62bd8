import { describe, expect, it } from 'vitest'
import { builtInCatalog } from '../../src/provider/catalog/catalog-file.ts'
import { long } from '../chaos/length.ts'
import { colourOf, colours, film, tone } from '../provider/engines/clips.ts'
import { frameAt, probe, toneIn } from '../provider/engines/probe.ts'
import { disc, likeness, referenceOf } from '../provider/engines/reference-files.ts'

// Each is made by the same engine. Long: all of them.
const models = [...builtInCatalog().values()]
  .filter(({ capabilities }) => capabilities.includes('image-to-video'))
  .map(({ slug }) => slug)
  .slice(0, long ? undefined : 1)

describe.each(models)('image-to-video with %s', (slug) => {
  it('starts with the picture and then moves: two references give two recognisable clips', async () => {
    const shape = { width: 854, height: 480 }
    const [red, green] = await Promise.all([disc(shape), disc({ ...shape, ground: '#103010', ink: '#20ff60' })])
    const fromRed = await film([await referenceOf(red, 'image_url')], { duration: 2 }, slug)
    const fromGreen = await film([await referenceOf(green, 'image_url')], { duration: 2 }, slug)
    expect(await likeness(await frameAt(fromRed.file, 0), red)).toBeGreaterThan(0.98)
    expect(await likeness(await frameAt(fromGreen.file, 0), green)).toBeGreaterThan(0.98)
    const [end, otherEnd] = [await frameAt(fromRed.file, 1.9), await frameAt(fromGreen.file, 1.9)]
    expect(await likeness(end, red)).toBeGreaterThan(0.6)
    expect(await likeness(otherEnd, green)).toBeGreaterThan(0.6)
    expect(await likeness(end, green)).toBeLessThan(0.3)
    // The camera moves, so the end differs more from an earlier frame than from a later one.
    const [earlier, later] = [await frameAt(fromRed.file, 1.2), await frameAt(fromRed.file, 1.8)]
    expect(await likeness(end, earlier)).toBeLessThan(0.995)
    expect(await likeness(end, later)).toBeGreaterThan((await likeness(end, earlier)) + 0.003)
  })
})

describe('references of a clip', () => {
  it('are cut if longer than their share, and otherwise play in full', async () => {
    const longer = await film([
      await referenceOf(
        await colours([
          ['blue', 3],
          ['green', 10],
        ]),
        'video_urls',
      ),
    ])
    const shorter = await film([
      await referenceOf(
        await colours([
          ['blue', 1],
          ['green', 0.2],
        ]),
        'video_urls',
      ),
    ])
    const colourAt = async ({ file }: { file: string }, seconds: number) => colourOf(await frameAt(file, seconds))
    expect([await colourAt(longer, 0), await colourAt(longer, 2.9), await colourAt(longer, 3.1)]).toEqual([
      'blue',
      'blue',
      'green',
    ])
    expect([await colourAt(shorter, 0), await colourAt(shorter, 0.9), await colourAt(shorter, 1.1)]).toEqual([
      'blue',
      'blue',
      'green',
    ])
  })

  const most = 30
  it(`may be ${most} pictures`, async () => {
    const inks = ['#ff0000', '#00ff00', '#0000ff']
    const pictures = await Promise.all(inks.map((ink) => disc({ width: 64, height: 36, ground: ink, ink })))
    const references = Array.from({ length: most }, (_, at) =>
      referenceOf(pictures[at % 3] ?? Buffer.alloc(0), 'image_urls', at),
    )
    const { file } = await film(await Promise.all(references))
    const shown = []
    for (const at of [0, 1, 2, most - 3, most - 2, most - 1])
      shown.push(await colourOf(await frameAt(file, (Math.floor((at * 96) / most) + 1) / 24)))
    expect(shown).toEqual(['red', 'green', 'blue', 'red', 'green', 'blue'])
  })

  const shapes = [
    ['a square video', () => colours([['blue', 1]], '128x128'), 'video_urls', { width: 480, height: 480 }],
    ['a tall picture', () => disc({ width: 300, height: 400 }), 'image_url', { width: 480, height: 640 }],
    ['a wide picture', () => disc({ width: 900, height: 100 }), 'image_urls', { width: 1120, height: 480 }],
  ] as const
  it.each(shapes)('give an adaptive clip the shape of %s', async (_what, bytes, field, size) => {
    expect(
      await film([await referenceOf(await bytes(), field)], { aspect_ratio: 'adaptive', duration: 1 }),
    ).toMatchObject(size)
  })
})

it('sounds are left out if no sound is requested; generated music does not contain them', async () => {
  const reference = await referenceOf(tone(440, 1), 'audio_urls')
  expect((await probe((await film([reference], { duration: 1 })).file)).audio).toBeUndefined()
  const { file } = await film([], { generate_audio: true, duration: 2 })
  expect(await toneIn(file, 1000)).toBeLessThan(0.1)
})

it('gives the same bytes for the same references', async () => {
  const references = [
    await referenceOf(await disc(), 'image_url'),
    await referenceOf(await colours([['blue', 1]]), 'video_urls'),
  ]
  const [one, other] = [await film(references, { duration: 1 }), await film(references, { duration: 1 })]
  expect(one.url.split('/').at(-1)).toBe(other.url.split('/').at(-1))
})

describe('pictures and videos of one clip', () => {
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
