import { openAsBlob } from 'node:fs'
import sharp from 'sharp'
import { z } from 'zod'
import { jsonOf } from '../../platform/json-text.ts'
import { extensionOf } from '../../platform/media-type.ts'
import type { Output } from '../../wire/schemas.ts'
import { type Brief, type FrameSize, imageSize, readBrief } from './brief.ts'
import type { OpenAiImagesSettings } from './engine-settings.ts'
import { type Engine, EngineError, type EngineJob, type Reference, type Report } from './engine.ts'
import { storeMedia } from './media-store.ts'
import { encodePicture } from './rasterize.ts'
import { base64Overhead, boundedFetch, type ReceivedPicture, receivePicture } from './remote-media.ts'

const answerSchema = z.object({
  data: z.array(z.object({ b64_json: z.string().nullish(), url: z.string().nullish() })).min(1),
})

/**
 * Creates the engine that has a service with the OpenAI images API make pictures, or edit the job's reference
 * pictures. The service gets these as files and never sees the client's links. Links in its answer are fetched from its
 * own origin, or from any host over https.
 */
export function createOpenAiImagesEngine(settings: OpenAiImagesSettings): Engine {
  return async (job, report, signal) => {
    const deadline = AbortSignal.timeout(settings.timeout_seconds * 1000)
    try {
      return await runOpenAiImages(job, { settings, report, signal: AbortSignal.any([signal, deadline]) })
    } catch (cause) {
      if (!deadline.aborted || signal.aborted || cause instanceof EngineError) throw cause
      const message = `the image service did not answer within ${settings.timeout_seconds} s`
      throw new EngineError(message, { cause, transient: true })
    }
  }
}

type Run = { settings: OpenAiImagesSettings; report: Report; signal: AbortSignal }

async function runOpenAiImages(job: EngineJob, run: Run): Promise<Output> {
  const brief = readBrief(job)
  const size = imageSize(brief)
  const wanted = requestedSize(size, run.settings.sizes)
  await run.report(0, `asking for ${brief.num_images} of ${wanted}`)

  const originals = job.references.filter(({ kind }) => kind === 'image')
  const images = []
  while (images.length < brief.num_images) {
    const count = Math.min(brief.num_images - images.length, run.settings.max_images_per_call)
    // A service may return fewer pictures than ordered. Each call returns at least one, so the loop ends.
    for (const picture of await orderPictures({ brief, size: wanted, count, originals }, run)) {
      images.push(await storePicture(job, { picture, index: images.length, format: brief.output_format }))
      await run.report(
        Math.round((images.length / brief.num_images) * 100),
        `picture ${images.length} of ${brief.num_images} is here`,
      )
    }
  }
  return { images }
}

type PictureOrder = { brief: Brief; size: string; count: number; originals: readonly Reference[] }

async function orderPictures(order: PictureOrder, { settings, signal }: Run): Promise<ReceivedPicture[]> {
  const { url, api_key: apiKey, max_answer_bytes: maxBytes } = settings
  const isEdit = order.originals.length > 0
  const { status, body } = await boundedFetch({
    url: `${url}/images/${isEdit ? 'edits' : 'generations'}`,
    init: {
      method: 'POST',
      headers: {
        ...(isEdit ? {} : { 'content-type': 'application/json' }),
        ...(apiKey && { authorization: `Bearer ${apiKey}` }),
      },
      body: isEdit ? await editForm(order, settings) : JSON.stringify(parametersOf(order, settings)),
    },
    signal,
    maxBytes: Math.ceil(maxBytes * base64Overhead),
  })
  if (status !== 200) throw refusal(status, body)
  const answer = answerSchema.safeParse(jsonOf(body.toString('utf8')))
  if (!answer.success) {
    const message = 'the image service sent an answer in an unexpected format'
    throw new EngineError(message, { cause: answer.error, transient: true })
  }
  const pictures: ReceivedPicture[] = []
  for (const item of answer.data.data.slice(0, order.count))
    pictures.push(await receivePicture(await pictureBytes(item, { settings, signal })))
  return pictures
}

function parametersOf({ brief, size, count }: PictureOrder, { model, response_format: format }: OpenAiImagesSettings) {
  return { model, prompt: brief.prompt, n: count, size, ...(format === 'omit' ? {} : { response_format: format }) }
}

/** The same parameters as a form. The pictures are read from disk while they are sent. */
async function editForm(order: PictureOrder, settings: OpenAiImagesSettings): Promise<FormData> {
  const form = new FormData()
  for (const [name, value] of Object.entries(parametersOf(order, settings))) form.append(name, String(value))
  for (const [at, { path, contentType }] of order.originals.entries()) {
    const name = order.originals.length === 1 ? 'image' : 'image[]'
    form.append(name, await openAsBlob(path, { type: contentType }), `${at}.${extensionOf(contentType)}`)
  }
  return form
}

async function pictureBytes(
  { b64_json: base64, url }: z.infer<typeof answerSchema>['data'][number],
  { settings, signal }: Pick<Run, 'settings' | 'signal'>,
): Promise<Buffer> {
  if (base64) return Buffer.from(base64.replace(/^data:[^,]*,/, ''), 'base64')
  const link = url ? URL.parse(url) : null
  if (link === null) throw new EngineError('the image service gave neither a picture nor a link to one')
  if (link.protocol !== 'https:' && link.origin !== new URL(settings.url).origin) {
    throw new EngineError('the image service gave a link that is neither https nor on its own host')
  }
  // Without the key, because the link may point to another host.
  const { status, body } = await boundedFetch({ url: link.href, init: {}, signal, maxBytes: settings.max_answer_bytes })
  if (status === 200) return body
  const cause = new Error(`status ${status}`)
  throw new EngineError('the picture could not be fetched from the image service', { cause, transient: true })
}

type Storing = { picture: ReceivedPicture; index: number; format: Brief['output_format'] }

/** Stores a picture as received, or in the requested format with the received file as original. */
async function storePicture(job: EngineJob, { picture, index, format }: Storing) {
  const { bytes, width, height } = picture
  const received = (name: string) => storeMedia(job, `${name}-${index}`, picture.format, bytes)
  if ((format !== 'png' && format !== 'webp') || format === picture.format)
    return { url: await received('image'), width, height }
  const converted = await encodePicture(sharp(bytes).autoOrient(), format)
  const url = await storeMedia(job, `image-${index}`, format, converted)
  return { url, width, height, original_url: await received('original') }
}

/** The exact size, or the accepted size that is closest in shape, then in area. */
function requestedSize(size: FrameSize, accepted: readonly string[] | undefined): string {
  const exact = `${size.width}x${size.height}`
  if (accepted === undefined || accepted.includes(exact)) return exact
  const distance = (candidate: string) => {
    const [width = 1, height = 1] = candidate.split('x').map(Number)
    const shape = Math.abs(Math.log((width / height) * (size.height / size.width)))
    return shape * 1000 + Math.abs(Math.log((width * height) / (size.width * size.height)))
  }
  return accepted.toSorted((a, b) => distance(a) - distance(b))[0] ?? exact
}

/** The service's own words are only logged, because they may name its host, account or key. */
function refusal(status: number, body: Buffer): EngineError {
  const cause = new Error(`the image service answered ${status}: ${body.toString('utf8', 0, 1000)}`)
  if (status === 400 || status === 422) return new EngineError('the image service refused this input', { cause })
  const transient = status === 429 || status >= 500
  const message = transient ? 'the image service is busy or failing' : 'the image service refused the call'
  return new EngineError(message, { cause, transient })
}
