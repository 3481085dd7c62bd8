import fs from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import type { RemoteJob } from '../../../src/provider/domain/engine-choice.ts'
import { httpEngineSchema } from '../../../src/provider/engines/engine-settings.ts'
import { type EngineJob, EngineError, EngineStop } from '../../../src/provider/engines/engine.ts'
import { createHttpEngine } from '../../../src/provider/engines/http-engine.ts'
import { audioOf, fileOf, filesBelow, imagesOf, mediaUrl, temporaryFolder, videoOf } from './engine-run.ts'
import { type Look, startEngineStand } from './engine-stand.ts'
import { picture, sendJson } from './images-service.ts'

const requestId = '0d0c5c3e-2f1b-4c3a-9d2e-000000000001'
// A brand that few tables know: engines may send any.
const mp4 = Buffer.concat([Buffer.from([0, 0, 0, 24]), Buffer.from('ftyp3gp5'), Buffer.alloc(64)])
const wav = Buffer.concat([Buffer.from('RIFF'), Buffer.alloc(4), Buffer.from('WAVE'), Buffer.alloc(64)])

const done = (...outputs: object[]) => ({ status: 'done', progress: 100, outputs })
const inBase64 = (bytes: Buffer) => ({ base64: bytes.toString('base64') })
const running: (look: Look) => void = ({ response }) => sendJson(response, { status: 'running' })

type Options = {
  onLook: (look: Look) => void | Promise<void>
  type?: 'image' | 'video' | 'audio'
  settings?: Record<string, unknown>
  job?: Partial<EngineJob>
  signal?: AbortSignal
  prepare?: (stand: Stand) => void | Promise<void>
}
type Stand = Awaited<ReturnType<typeof startEngineStand>>

/** One run against a stand; `result` is the output or the error. */
async function runOn({
  onLook,
  type = 'image',
  settings = {},
  job = {},
  signal = new AbortController().signal,
  prepare,
}: Options) {
  const stand = await startEngineStand(onLook)
  await prepare?.(stand)
  const engine = createHttpEngine(
    httpEngineSchema.parse({ url: stand.url, api_key: 'a-token', poll_seconds: 0.02, ...settings }),
    type,
  )
  const mediaDir = await temporaryFolder()
  const reported: [number, string?][] = []
  const kept: RemoteJob[] = []
  const keepRemoteJob = async (remoteJob: RemoteJob) => void kept.push({ ...remoteJob })
  const report = async (percent: number, line?: string) =>
    void reported.push(line === undefined ? [percent] : [percent, line])
  const whole = {
    requestId,
    model: 'dunes',
    input: { prompt: 'x' },
    references: [],
    mediaDir,
    mediaUrl,
    keepRemoteJob,
    ...job,
  }
  const result = engine(whole, report, signal)
  result.catch(() => {})
  return { ...stand, result, reported, kept, mediaDir }
}

function formWith(id: string): FormData {
  const form = new FormData()
  form.append('job', JSON.stringify({ request_id: id }))
  return form
}

const failureOf = (result: Promise<unknown>): Promise<EngineError> =>
  result.then(
    () => expect.fail('it did not fail'),
    (error) => error,
  )

const causeOf = ({ cause }: EngineError) => (cause instanceof Error ? cause.message : 'no cause')

describe('the start of a job', () => {
  it('sends the request and its references with the token, as one form', async () => {
    const file = path.join(await temporaryFolder(), 'a')
    await fs.writeFile(file, 'bytes of a picture')
    const picked = { kind: 'image' as const, path: file, sha256: '' }
    const references = [
      { field: 'image_urls', position: 0, ...picked, contentType: 'image/png' },
      { field: 'image_urls', position: 1, ...picked, contentType: 'image/webp' },
    ]
    const bytes = await picture('png')
    const { result, started, calls, kept } = await runOn({
      onLook: ({ response }) => sendJson(response, done(inBase64(bytes))),
      job: { references },
    })
    await result
    expect(started).toHaveLength(1)
    expect(started[0]?.job).toEqual({
      request_id: requestId,
      model: 'dunes',
      type: 'image',
      input: { prompt: 'x' },
      references: [
        { part: 'reference-0', field: 'image_urls', position: 0, content_type: 'image/png' },
        { part: 'reference-1', field: 'image_urls', position: 1, content_type: 'image/webp' },
      ],
    })
    expect([...(started[0]?.parts ?? [])]).toEqual([
      ['reference-0', { text: 'bytes of a picture', type: 'image/png' }],
      ['reference-1', { text: 'bytes of a picture', type: 'image/webp' }],
    ])
    expect(calls.map(({ method, path: where, token }) => [method, where, token])).toEqual([
      ['POST', '/jobs', 'Bearer a-token'],
      ['GET', '/jobs/1', 'Bearer a-token'],
    ])
    expect(kept).toEqual([{ url: expect.stringMatching(/\/jobs\/1$/), isRepeat: false }])
  })

  it("that is answered 400 fails permanently, without the engine's own message", async () => {
    const { result, instead } = await runOn({ onLook: running })
    instead.push((response) => sendJson(response, { secret: 'inside' }, 400))
    const error = await failureOf(result)
    expect(error).toMatchObject({ message: 'the engine refused this input', transient: false })
    expect(String(error.cause)).toContain('inside')
  })

  it('rejects a job URL on another host, which would receive the token', async () => {
    const { result, instead } = await runOn({ onLook: running })
    instead.push((response) => sendJson(response, { url: 'http://127.0.0.2/jobs/1' }, 202))
    expect(causeOf(await failureOf(result))).toBe('it named a job that is not on its own host')
  })
})

describe('the outputs of a job', () => {
  it("are pictures, as links to the engine's host or in base64, with their actual sizes", async () => {
    const bytes = await picture('webp', { width: 32, height: 16 })
    const { result, files, mediaDir, of } = await runOn({
      onLook: ({ response }) => sendJson(response, done({ url: '/made/1.png', width: 7, height: 7 }, inBase64(bytes))),
      prepare: async (stand) => void stand.files.set('/made/1.png', await picture('png', { width: 96, height: 64 })),
    })
    const [linked, inline] = imagesOf(await result)
    expect([linked, inline]).toMatchObject([
      { width: 96, height: 64 },
      { width: 32, height: 16 },
    ])
    expect(await fs.readFile(fileOf(mediaDir, linked?.url ?? ''))).toEqual(files.get('/made/1.png'))
    expect(await fs.readFile(fileOf(mediaDir, inline?.url ?? ''))).toEqual(bytes)
    expect(of('GET').map(({ path: where }) => where)).toEqual(['/jobs/1', '/made/1.png'])
  })

  it('are one video with its size and length, or one sound', async () => {
    const clip = { ...inBase64(mp4), width: 640, height: 360, duration: 4 }
    const made = await runOn({ type: 'video', onLook: ({ response }) => sendJson(response, done(clip)) })
    const video = videoOf(await made.result)
    expect(video).toMatchObject({ width: 640, height: 360, duration: 4, url: expect.stringMatching(/\.mp4$/) })
    const played = await runOn({
      type: 'audio',
      onLook: ({ response }) => sendJson(response, done({ ...inBase64(wav), duration: 2 })),
    })
    expect(audioOf(await played.result)).toMatchObject({ duration: 2, url: expect.stringMatching(/\.wav$/) })
  })

  it.each<[string, 'image' | 'video' | 'audio', object, string | RegExp]>([
    ['none', 'image', done(), 'it made nothing'],
    ['neither bytes nor link', 'image', done({}), 'it gave neither an output nor a link to one'],
    [
      'a page as a picture',
      'image',
      done(inBase64(Buffer.from('<html>'))),
      'the image service sent a file that is not a PNG, WebP or JPEG',
    ],
    [
      'a sound as a video',
      'video',
      done({ ...inBase64(wav), width: 1, height: 1, duration: 1 }),
      'its output is not an MP4',
    ],
    ['a video without its size', 'video', done(inBase64(mp4)), 'it gave no width, height and duration of its video'],
    ['two sounds', 'audio', done(inBase64(wav), inBase64(wav)), 'it made more than one audio'],
    [
      'a link to another host without TLS',
      'image',
      done({ url: 'http://127.0.0.2/1.png' }),
      'it gave a link that is neither https nor on its own host',
    ],
    [
      'a link to a file',
      'image',
      done({ url: 'file:///etc/passwd' }),
      'it gave a link that is neither https nor on its own host',
    ],
    ['another shape', 'image', { status: 'ready' }, /queued/],
  ])('with %s fail the request permanently, and delete the job', async (_what, type, look, reason) => {
    const { result, of, mediaDir } = await runOn({ type, onLook: ({ response }) => sendJson(response, look) })
    const error = await failureOf(result)
    expect(error).toMatchObject({
      name: 'EngineError',
      message: 'the engine gave an answer that cannot be used',
      transient: false,
    })
    expect(causeOf(error)).toMatch(reason)
    expect(of('DELETE').map(({ path: where }) => where)).toEqual(['/jobs/1'])
    expect(await filesBelow(mediaDir)).toEqual([])
  })

  it('of more than max_output_bytes in total fail the request, as links and in base64', async () => {
    const settings = { max_output_bytes: 1024 }
    const linked = await runOn({
      settings,
      onLook: ({ response }) => sendJson(response, done({ url: '/made/1.png' })),
      prepare: async (stand) => void stand.files.set('/made/1.png', Buffer.alloc(1025)),
    })
    expect(causeOf(await failureOf(linked.result))).toContain('answered with more than 1024 bytes')
    const half = inBase64(await picture('png', { width: 8, height: 8 }))
    const many = Array.from({ length: 20 }, () => half)
    const inline = await runOn({ settings, onLook: ({ response }) => sendJson(response, done(...many)) })
    expect(causeOf(await failureOf(inline.result))).toBe('it made more than 1024 bytes')
  })
})

describe('a running job', () => {
  let stand: Stand

  it('reports its progress, and each line of its logs once', async () => {
    const logs = ['begins', 'paints', 'varnishes']
    const bytes = await picture('png')
    const { result, reported } = await runOn({
      onLook: ({ look, response }) => {
        if (look < 3) return sendJson(response, { status: 'running', progress: look * 30, logs: logs.slice(0, look) })
        sendJson(response, { ...done(inBase64(bytes)), logs })
      },
    })
    await result
    expect(reported).toEqual([[30, 'begins'], [30], [60, 'paints'], [60], [100, 'varnishes'], [100]])
  })

  it('that fails makes the request FAILED, and its reason is only logged', async () => {
    const { result } = await runOn({
      onLook: ({ response }) => sendJson(response, { status: 'failed', error: 'GPU 3 on host 10.0.0.7' }),
    })
    const error = await failureOf(result)
    expect(error).toMatchObject({ message: 'the engine failed', transient: false })
    expect(String(error.cause)).toContain('GPU 3')
  })

  it('survives failed calls up to the allowed number of retries', async () => {
    const bytes = await picture('png')
    const busy = await runOn({ onLook: ({ response }) => sendJson(response, done(inBase64(bytes))) })
    for (const status of [503, 429, 500]) busy.instead.push((response) => sendJson(response, {}, status))
    busy.instead.push((response) => void response.destroy())
    expect(imagesOf(await busy.result)).toHaveLength(1)
    expect(busy.started).toHaveLength(1)

    const down = await runOn({ onLook: ({ response }) => sendJson(response, {}, 503) })
    expect(await failureOf(down.result)).toMatchObject({
      message: 'the engine is busy or cannot be reached',
      transient: true,
    })
    expect(down.of('GET')).toHaveLength(6)
    // A retry continues the job.
    expect(down.of('DELETE')).toEqual([])
  })

  it('that another worker started is continued, not started again, and its log lines are not repeated', async () => {
    const bytes = await picture('png')
    stand = await startEngineStand(({ look, response }) => {
      if (look === 1) return sendJson(response, { status: 'running', progress: 50, logs: ['known'] })
      sendJson(response, { ...done(inBase64(bytes)), logs: ['known', 'new'] })
    })
    await fetch(stand.url, { method: 'POST', body: formWith(requestId) })
    const job = { remoteJob: { url: `${stand.url}/1`, isRepeat: false } }
    const second = await runOn({ onLook: running, settings: { url: stand.url }, job })
    await second.result
    expect(stand.of('POST')).toHaveLength(1)
    expect(second.reported.flatMap(([, line]) => line ?? [])).toEqual(['new'])
  })

  it('that the engine lost is started once more, recorded first; a second loss fails the request', async () => {
    const { result, kept, started, of } = await runOn({
      onLook: ({ response }) => {
        stand.forget()
        sendJson(response, { status: 'running' })
      },
      prepare: (given) => void (stand = given),
    })
    const error = await failureOf(result)
    expect(error).toMatchObject({ message: 'the engine failed', transient: false })
    expect(causeOf(error)).toBe('it lost the job twice')
    expect(started.map((job) => job.requestId)).toEqual([requestId, requestId])
    expect(of('POST')).toHaveLength(2)
    expect(kept).toEqual([
      { url: expect.stringMatching(/\/jobs\/1$/), isRepeat: false },
      { url: null, isRepeat: true },
      { url: expect.stringMatching(/\/jobs\/2$/), isRepeat: true },
    ])
  })
  it('that was restarted before another worker took over is not restarted again', async () => {
    const remoteJob = { url: null, isRepeat: true }
    const { result, of } = await runOn({
      onLook: ({ response }) => sendJson(response, {}, 404),
      job: { remoteJob },
    })
    expect(causeOf(await failureOf(result))).toBe('it lost the job twice')
    expect(of('POST')).toHaveLength(1)
  })
})

describe('the end of a run', () => {
  it.each([
    ['a cancel', true, ['/jobs/1']],
    ['a stop of the process, which another follows', false, []],
  ])('by %s ends the job: %s', async (_what, discard, deleted) => {
    const stop = new AbortController()
    const { result, of } = await runOn({
      signal: stop.signal,
      onLook: (look) => {
        running(look)
        stop.abort(new EngineStop('x', { discard }))
      },
    })
    expect(await failureOf(result)).toMatchObject({ name: 'EngineStop' })
    expect(of('DELETE').map(({ path: where }) => where)).toEqual(deleted)
  })

  it('by its deadline fails the request permanently, and deletes the job', async () => {
    const { result, of } = await runOn({ onLook: running, settings: { timeout_seconds: 0.2 } })
    expect(await failureOf(result)).toMatchObject({
      message: 'the engine did not finish within 0.2 s',
      transient: false,
    })
    expect(of('DELETE')).toHaveLength(1)
  })
})
