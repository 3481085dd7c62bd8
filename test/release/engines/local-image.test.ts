import fs from 'node:fs/promises'
import sharp from 'sharp'
import { describe, expect, it } from 'vitest'
import { EngineError } from '../../../src/provider/engines/engine.ts'
import { createLocalImageEngine } from '../../../src/provider/engines/local-image.ts'
import { fileOf, filesBelow, imagesOf, mediaUrl, runEngine } from '../../provider/engines/engine-run.ts'

const engine = createLocalImageEngine({ withOriginal: false })
const withOriginal = createLocalImageEngine({ withOriginal: true })

async function draw(input: Record<string, unknown>, model = 'a-model') {
  const { output, mediaDir } = await runEngine(engine, { model, input })
  const [image] = imagesOf(output)
  if (image === undefined) throw new Error('no picture')
  return { ...image, bytes: await fs.readFile(fileOf(mediaDir, image.url)) }
}

describe('local-image', () => {
  it.each([
    [{}, 1024, 1024],
    [{ aspect_ratio: '16:9' }, 1280, 720],
    [{ aspect_ratio: '9:16', resolution: '1k' }, 720, 1280],
    [{ aspect_ratio: '21:9', resolution: '2k' }, 3136, 1344],
  ])('makes a PNG of the wanted size for %o', async (input, width, height) => {
    const { bytes, ...stated } = await draw({ prompt: 'a quiet bay', ...input })
    expect(await sharp(bytes).metadata()).toMatchObject({ format: 'png', width, height })
    expect(stated).toMatchObject({ width, height })
  })

  it('makes a WebP if requested', async () => {
    const { bytes, url } = await draw({ prompt: 'a quiet bay', output_format: 'webp' })
    expect(await sharp(bytes).metadata()).toMatchObject({ format: 'webp', width: 1024, height: 1024 })
    expect(url).toMatch(/\.webp$/)
  })

  it('makes as many different pictures as requested, each with a lossless original', async () => {
    const { output, mediaDir, requestId } = await runEngine(withOriginal, {
      input: { prompt: 'a quiet bay', num_images: 3, output_format: 'webp' },
    })
    const images = imagesOf(output)
    expect(images).toHaveLength(3)
    expect(new Set(images.map(({ url }) => url)).size).toBe(3)
    for (const { url, original_url: original, width, height } of images) {
      expect(url).toContain(`${mediaUrl}/${requestId}/`)
      expect(await sharp(fileOf(mediaDir, original ?? '')).metadata()).toMatchObject({ format: 'png', width, height })
    }
    expect(await filesBelow(mediaDir)).toHaveLength(6)
  })

  it('returns the same bytes for the same model and input, regardless of key order', async () => {
    const first = await draw({ prompt: 'a quiet bay', seed: 4, strength: 0.5 })
    const second = await draw({ strength: 0.5, seed: 4, prompt: 'a quiet bay' })
    expect(second.bytes.equals(first.bytes)).toBe(true)
  })

  let plain: Buffer | undefined

  it.each([
    ['prompt', { prompt: 'a loud bay' }, 'a-model'],
    ['seed', { prompt: 'a quiet bay', seed: 5 }, 'a-model'],
    ['model', { prompt: 'a quiet bay' }, 'another-model'],
  ])('returns a different picture for another %s', async (_what, input, model) => {
    plain ??= (await draw({ prompt: 'a quiet bay' })).bytes
    const other = await draw(input, model)
    expect(other.bytes.equals(plain)).toBe(false)
  })

  it('reports progress that only grows, up to 100, with a line for each picture', async () => {
    const { reported } = await runEngine(engine, { input: { prompt: 'a quiet bay', num_images: 2 } })
    const progress = reported.map((report) => report.progress)
    expect(progress).toEqual(progress.toSorted((a, b) => a - b))
    expect(progress.at(-1)).toBe(100)
    expect(reported.map(({ line }) => line)).toContain('picture 2 of 2 is done')
  })

  it('stops between pictures when the job is aborted', async () => {
    const controller = new AbortController()
    const onReport = (progress: number) => progress > 0 && controller.abort(new Error('taken away'))
    const run = runEngine(engine, { input: { prompt: 'a', num_images: 8 }, signal: controller.signal, onReport })
    await expect(run).rejects.toThrow('taken away')
  })

  it('names the problem of an input that no schema of ours allows', async () => {
    await expect(runEngine(engine, { input: { prompt: 'a', aspect_ratio: '7:1' } })).rejects.toThrow(EngineError)
    await expect(runEngine(engine, { input: { prompt: 7 } })).rejects.toThrow('cannot work with the input: prompt')
  })

  it('never creates a folder from an id that is a path', async () => {
    const job = {
      requestId: '../outside',
      model: 'm',
      input: { prompt: 'a' },
      references: [],
      mediaDir: '/nowhere',
      mediaUrl,
    }
    await expect(engine(job, async () => {}, new AbortController().signal)).rejects.toThrow('not a request id')
  })
})

describe('a hostile prompt', () => {
  it.each([
    ['markup', '</text></svg><image href="file:///etc/passwd"/><script>alert(1)</script>'],
    ['entities', '<!DOCTYPE x [<!ENTITY a "b">]>&a;&lol;&#0;]]>'],
    ['control characters', '\u0001\u0008\u001b[31m\u007f\u0085\u2028\u2029\uFFFE\uFFFF'],
    ['a lone surrogate', 'half \ud800 of \udc00 a pair'],
    ['emoji', '👨‍👩‍👧‍👦🏴󠁧󠁢󠁳󠁣󠁴󠁿 🚀'.repeat(30)],
    ['right-to-left text', 'مرحبا \u202E بالعالم שלום'.repeat(20)],
    ['stacked marks', `Z${'\u0300'.repeat(5000)}algo`],
    ['30,000 characters without a space', 'x'.repeat(30_000)],
    ['30,000 emoji', '😀'.repeat(30_000)],
    ['nothing but spaces', ' \t\n '],
    ['nothing', ''],
  ])('of %s gives a whole picture', async (_what, prompt) => {
    const { bytes } = await draw({ prompt, aspect_ratio: '16:9' })
    const { channels } = await sharp(bytes).stats()
    // A picture that broke off would be of one colour.
    expect(Math.max(...channels.map(({ stdev }) => stdev))).toBeGreaterThan(5)
  })
})
