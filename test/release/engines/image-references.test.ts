import sharp from 'sharp'
import { describe, expect, it } from 'vitest'
import { builtInCatalog } from '../../../src/provider/catalog/catalog-file.ts'
import { createEngines } from '../../../src/provider/engines/registry.ts'
import { long } from '../../chaos/length.ts'
import { fileOf, imagesOf, runEngine } from '../../provider/engines/engine-run.ts'
import { disc, likeness, referenceOf } from '../../provider/engines/reference-files.ts'

const models = [...builtInCatalog().values()].filter(({ capabilities }) => capabilities.includes('image-to-image'))

/** The key that a model takes its first picture by. */
const keyOf = (slug: string) => {
  const schema = models.find((model) => model.slug === slug)?.input_schema ?? {}
  return 'image_url' in schema ? 'image_url' : 'image_urls'
}

async function draw(slug: string, pictures: Buffer[], input: Record<string, unknown> = {}) {
  const model = models.find((one) => one.slug === slug) ?? expect.fail('no such model')
  const engine = createEngines().get(model.engine) ?? expect.fail('no such engine')
  const references = await Promise.all(pictures.map((picture, at) => referenceOf(picture, keyOf(slug), at)))
  const { output, mediaDir } = await runEngine(engine, {
    model: slug,
    input: { prompt: 'a quiet bay', ...input },
    references,
  })
  return fileOf(mediaDir, imagesOf(output)[0]?.url ?? '')
}

// Each is made by the same engine. Long: all of them.
describe.each(models.map(({ slug }) => slug).slice(0, long ? undefined : 1))('image-to-image with %s', (slug) => {
  it('starts from the picture: two references give two recognisable outputs', async () => {
    const [red, green] = await Promise.all([disc(), disc({ ground: '#103010', ink: '#20ff60' })])
    const [fromRed, fromGreen] = [await draw(slug, [red]), await draw(slug, [green])]
    expect(await likeness(fromRed, red)).toBeGreaterThan(0.7)
    expect(await likeness(fromGreen, green)).toBeGreaterThan(0.7)
    expect(await likeness(fromRed, green)).toBeLessThan(0.3)
    expect(await likeness(fromGreen, red)).toBeLessThan(0.3)
  })

  it('differs more from the picture with more strength, but never completely', async () => {
    const red = await disc()
    const alike = []
    for (const strength of [0, 0.5, 1]) alike.push(await likeness(await draw(slug, [red], { strength }), red))
    expect(alike).toEqual(alike.toSorted((a, b) => b - a))
    expect(alike.at(0)).toBeGreaterThan(alike.at(-1) ?? 1)
    expect(alike.at(-1)).toBeGreaterThan(0.5)
  })
})

describe('a picture', () => {
  it('of another shape is shown whole', async () => {
    const tall = await disc({ width: 300, height: 600 })
    const file = await draw('aurora-image-edit', [tall], { aspect_ratio: '16:9', strength: 0 })
    // The whole picture is as high as the frame of 1280 by 720, and in its middle.
    const middle = await sharp(file).extract({ left: 460, top: 0, width: 360, height: 720 }).toBuffer()
    expect(await likeness(middle, tall)).toBeGreaterThan(0.7)
  })

  it('is rotated by its EXIF orientation', async () => {
    const lying = await sharp({ create: { width: 400, height: 200, channels: 3, background: '#0000ff' } })
      .composite([
        { input: { create: { width: 200, height: 200, channels: 3, background: '#ff0000' } }, left: 0, top: 0 },
      ])
      .withMetadata({ orientation: 6 })
      .jpeg()
      .toBuffer()
    const file = await draw('aurora-image-edit', [lying], { aspect_ratio: '9:16', strength: 0 })
    // Turned by a quarter to the right, the red half is above the blue one.
    const colourAt = async (top: number) => [
      ...(await sharp(file).extract({ left: 360, top, width: 1, height: 1 }).raw().toBuffer()),
    ]
    expect(await colourAt(200)).toEqual([expect.closeTo(254, -1), expect.closeTo(0, -1), expect.closeTo(0, -1)])
    expect(await colourAt(760)).toEqual([expect.closeTo(0, -1), expect.closeTo(0, -1), expect.closeTo(254, -1)])
  })
})

it('composes several pictures: the first fills the frame, each other one is recognisable in it', async () => {
  const colours = ['#00a000', '#0000c0', '#c0c000', '#c000c0', '#00c0c0', '#808080', '#804000']
  const others = await Promise.all(colours.map((ink) => disc({ ground: '#000000', ink })))
  const red = await disc({ width: 1024, height: 1024 })
  const file = await draw('aurora-image-edit', [red, ...others], { strength: 0 })
  for (const [at, picture] of others.entries()) {
    // Squares of 110 pixels, 31 apart, each with a frame of 6.
    const inset = await sharp(file)
      .extract({ left: 31 + at * 141 + 6, top: 31 + 6, width: 98, height: 98 })
      .toBuffer()
    expect(await likeness(inset, picture), colours[at]).toBeGreaterThan(0.9)
  }
  const below = { left: 0, top: 200, width: 1024, height: 400 }
  expect(
    await likeness(await sharp(file).extract(below).toBuffer(), await sharp(red).extract(below).toBuffer()),
  ).toBeGreaterThan(0.95)
})
