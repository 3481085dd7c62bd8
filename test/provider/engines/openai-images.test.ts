import fs from 'node:fs/promises'
import sharp from 'sharp'
import { describe, expect, it } from 'vitest'
import { openAiImagesSchema } from '../../../src/provider/engines/engine-settings.ts'
import { EngineError } from '../../../src/provider/engines/engine.ts'
import { createOpenAiImagesEngine } from '../../../src/provider/engines/openai-images.ts'
import { fileOf, filesBelow, imagesOf, runEngine, temporaryFolder } from './engine-run.ts'
import { picture, sendJson, startImagesService, type Answer } from './images-service.ts'
import { referenceOf } from './reference-files.ts'

const apiKey = 'sk-very-secret'

const withPictures =
  (pictures: Buffer[]): Answer =>
  ({ response }) =>
    sendJson(response, { created: 1, data: pictures.map((bytes) => ({ b64_json: bytes.toString('base64') })) })

async function engineFor(answer: Answer, more: Record<string, unknown> = {}) {
  const service = await startImagesService(answer)
  const settings = openAiImagesSchema.parse({ url: service.url, api_key: apiKey, model: 'gpt-image-1', ...more })
  return { ...service, engine: createOpenAiImagesEngine(settings) }
}

async function failure(answer: Answer, more: Record<string, unknown> = {}): Promise<EngineError> {
  const { engine } = await engineFor(answer, more)
  const error = await runEngine(engine, { input: { prompt: 'a quiet bay' } }).catch((thrown) => thrown)
  expect(error).toBeInstanceOf(EngineError)
  expect(error.message).not.toMatch(/127\.0\.0\.1|sk-very-secret|whisper/)
  return error
}

describe('openai-images', () => {
  it('posts model, prompt, n, size and response_format with the key', async () => {
    const { engine, received } = await engineFor(withPictures([await picture('png'), await picture('png')]))
    await runEngine(engine, { input: { prompt: 'a quiet bay', num_images: 2, aspect_ratio: '16:9' } })
    expect(received).toHaveLength(1)
    expect(received[0]).toMatchObject({
      method: 'POST',
      path: '/v1/images/generations',
      headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
      body: { model: 'gpt-image-1', prompt: 'a quiet bay', n: 2, size: '1280x720', response_format: 'b64_json' },
    })
  })

  it('stores the returned bytes unchanged, with their actual size', async () => {
    const sent = await picture('jpeg', { width: 96, height: 64 })
    const { engine } = await engineFor(withPictures([sent]))
    const { output, mediaDir, reported } = await runEngine(engine, { input: { prompt: 'a quiet bay' } })
    const [image] = imagesOf(output)
    expect(image).toMatchObject({ width: 96, height: 64 })
    expect(image?.url).toMatch(/\.jpg$/)
    expect((await fs.readFile(fileOf(mediaDir, image?.url ?? ''))).equals(sent)).toBe(true)
    expect(reported.at(-1)).toEqual({ progress: 100, line: 'picture 1 of 1 is here' })
  })

  it('converts to the requested format, and keeps the returned picture as the original', async () => {
    const sent = await picture('png')
    const { engine } = await engineFor(withPictures([sent]))
    const { output, mediaDir } = await runEngine(engine, { input: { prompt: 'a', output_format: 'webp' } })
    const [image] = imagesOf(output)
    expect(await sharp(fileOf(mediaDir, image?.url ?? '')).metadata()).toMatchObject({
      format: 'webp',
      width: 96,
      height: 64,
    })
    expect((await fs.readFile(fileOf(mediaDir, image?.original_url ?? ''))).equals(sent)).toBe(true)
  })

  it('repeats calls until it has enough pictures, each within the limit per call', async () => {
    let shade = 0
    const one: Answer = async ({ response }) =>
      sendJson(response, { data: [{ b64_json: (await picture('png', { shade: (shade += 20) })).toString('base64') }] })
    const { engine, received } = await engineFor(one, { max_images_per_call: 2 })
    const { output } = await runEngine(engine, { input: { prompt: 'a', num_images: 3 } })
    expect(imagesOf(output)).toHaveLength(3)
    expect(new Set(imagesOf(output).map(({ url }) => url)).size).toBe(3)
    expect(received.map(({ body }) => body)).toMatchObject([{ n: 2 }, { n: 2 }, { n: 1 }])
  })

  it('ignores pictures beyond the requested number', async () => {
    const { engine } = await engineFor(
      withPictures(await Promise.all([10, 20, 30].map((shade) => picture('png', { shade })))),
    )
    const { output } = await runEngine(engine, { input: { prompt: 'a' } })
    expect(imagesOf(output)).toHaveLength(1)
  })

  it.each([
    ['1:1', '1024x1024'],
    ['16:9', '1536x1024'],
    ['9:16', '1024x1536'],
  ])('requests the supported size nearest to %s', async (ratio, size) => {
    const sizes = ['1024x1024', '1536x1024', '1024x1536', '256x256']
    const { engine, received } = await engineFor(withPictures([await picture('png')]), {
      sizes,
      response_format: 'omit',
    })
    await runEngine(engine, { input: { prompt: 'a', aspect_ratio: ratio } })
    expect(received[0]?.body).toEqual({ model: 'gpt-image-1', prompt: 'a', n: 1, size })
  })

  it('fetches a picture from a link without sending the key', async () => {
    const sent = await picture('webp')
    const { engine, received } = await engineFor(({ request, response, url }) => {
      if (request.method === 'GET') response.end(sent)
      else sendJson(response, { data: [{ url: `${url}/files/1.webp` }] })
    })
    const { output } = await runEngine(engine, { input: { prompt: 'a' } })
    expect(imagesOf(output)[0]?.url).toMatch(/\.webp$/)
    expect(received[1]).toMatchObject({ method: 'GET', path: '/files/1.webp' })
    expect(received[1]?.headers).not.toHaveProperty('authorization')
  })

  it.each([
    [1, ['image']],
    [2, ['image[]', 'image[]']],
  ])('posts %i reference pictures as form files to be edited, and no link of the client', async (count, names) => {
    const { engine, received } = await engineFor(withPictures([await picture('png')]))
    const files = [await picture('jpeg'), await picture('webp')].slice(0, count)
    const references = await Promise.all(files.map((bytes, at) => referenceOf(bytes, 'image_urls', at)))
    const input = {
      prompt: 'a quiet bay',
      image_urls: ['https://a.example/1.jpg', 'https://a.example/2.webp'].slice(0, count),
    }
    const { output } = await runEngine(engine, { input, references })
    expect(imagesOf(output)).toHaveLength(1)
    expect(received).toHaveLength(1)
    expect(received[0]).toMatchObject({
      method: 'POST',
      path: '/v1/images/edits',
      headers: { authorization: `Bearer ${apiKey}` },
    })
    const asFiles = [
      { name: '0.jpg', type: 'image/jpeg', bytes: files[0] },
      { name: '1.webp', type: 'image/webp', bytes: files[1] },
    ]
    expect(received[0]?.body).toEqual([
      ['model', 'gpt-image-1'],
      ['prompt', 'a quiet bay'],
      ['n', '1'],
      ['size', '1024x1024'],
      ['response_format', 'b64_json'],
      ...names.map((name, at) => [name, asFiles[at]]),
    ])
  })
})

describe('openai-images fails with a clean message', () => {
  const words = { error: { message: `whisper: key ${apiKey} of 127.0.0.1` } }

  it.each([
    [400, 'the image service refused this input', false],
    [401, 'the image service refused the call', false],
    [307, 'the image service refused the call', false],
    [429, 'the image service is busy or failing', true],
    [503, 'the image service is busy or failing', true],
  ])('when the service answers %i', async (status, message, transient) => {
    const error = await failure(({ response }) => {
      response.setHeader('location', '/elsewhere')
      sendJson(response, words, status)
    })
    expect(error).toMatchObject({ message, transient })
    expect(String(error.cause)).toContain('whisper')
  })

  it.each<[string, string, (service: { url: string }) => unknown]>([
    [
      'the answer is of another shape',
      'the image service sent an answer in an unexpected format',
      () => ({ data: [] }),
    ],
    ['an item is empty', 'the image service gave neither a picture nor a link to one', () => ({ data: [{}] })],
    [
      'the link is no link',
      'the image service gave neither a picture nor a link to one',
      () => ({ data: [{ url: 'nonsense' }] }),
    ],
    [
      'the link is plain http elsewhere',
      'the image service gave a link that is neither https nor on its own host',
      () => ({ data: [{ url: 'http://127.0.0.1:1/a.png' }] }),
    ],
    [
      'the link is a file',
      'the image service gave a link that is neither https nor on its own host',
      () => ({ data: [{ url: 'file:///etc/hostname' }] }),
    ],
  ])('when %s', async (_what, message, body) => {
    const error = await failure(({ response, url }) => sendJson(response, body({ url })))
    expect(error.message).toBe(message)
  })

  it('when the answer is not JSON', async () => {
    const error = await failure(({ response }) => void response.end('<html>'))
    expect(error.message).toBe('the image service sent an answer in an unexpected format')
  })

  it('when the picture is an SVG, which could run scripts', async () => {
    const error = await failure(withPictures([await picture('svg')]))
    expect(error.message).toBe('the image service sent a file that is not a PNG, WebP or JPEG')
  })

  it('when the picture is cut off', async () => {
    const noise = await sharp({
      create: {
        width: 200,
        height: 200,
        channels: 3,
        background: '#000',
        noise: { type: 'gaussian', mean: 128, sigma: 60 },
      },
    })
      .jpeg()
      .toBuffer()
    const error = await failure(withPictures([noise.subarray(0, noise.length / 2)]))
    expect(error.message).toBe('the image service answered with a damaged picture')
  })

  it('when the answer is larger than allowed, and stops reading it', async () => {
    let cut = false
    const error = await failure(
      ({ response }) => {
        response.writeHead(200, { 'content-type': 'application/json' })
        const more = () => response.destroyed || response.write('x'.repeat(65_536), () => setImmediate(more))
        response.on('close', () => (cut = true))
        more()
      },
      { max_answer_bytes: 1024 * 1024 },
    )
    expect(error.message).toMatch(/answered with more than \d+ bytes/)
    await expect.poll(() => cut).toBe(true)
  })

  it('when the answer arrives slowly past the deadline', async () => {
    const error = await failure(
      ({ response }) => {
        response.writeHead(200)
        const drip = setInterval(() => response.write(' '), 20)
        response.on('close', () => clearInterval(drip))
      },
      { timeout_seconds: 0.4 },
    )
    expect(error).toMatchObject({ message: 'the image service did not answer within 0.4 s', transient: true })
  })

  it('when nothing listens', async () => {
    const { engine, server } = await engineFor(() => {})
    server.close()
    await expect(runEngine(engine, { input: { prompt: 'a' } })).rejects.toMatchObject({
      message: 'the image service could not be reached',
      transient: true,
    })
  })

  it('when the connection breaks off', async () => {
    const error = await failure(({ response }) => {
      response.writeHead(200, { 'content-length': '1000' }).write('{"data"')
      setImmediate(() => response.destroy())
    })
    expect(error).toMatchObject({ message: 'the image service could not be reached', transient: true })
  })

  it('with the abort reason, when another worker takes the job over', async () => {
    const controller = new AbortController()
    const reason = new Error('taken away')
    const { engine } = await engineFor(() => controller.abort(reason))
    await expect(runEngine(engine, { input: { prompt: 'a' }, signal: controller.signal })).rejects.toBe(reason)
  })

  it('without leaving a file', async () => {
    const { engine } = await engineFor(withPictures([Buffer.from('no picture')]))
    const mediaDir = await temporaryFolder()
    const job = { requestId: 'r', model: 'm', input: { prompt: 'a' }, references: [], mediaDir, mediaUrl: '' }
    await expect(engine(job, async () => {}, new AbortController().signal)).rejects.toThrow(EngineError)
    expect(await filesBelow(mediaDir)).toEqual([])
  })
})
