import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { checkReferences } from '../../src/provider/references/reference-links.ts'
import { long } from '../chaos/length.ts'
import { disc } from '../provider/engines/reference-files.ts'
import { startReferenceJobs } from '../provider/support/reference-job.ts'
import { type Serve, startReferenceSite } from '../provider/support/reference-site.ts'
import { startTestProvider, type TestProvider } from '../provider/support/running-provider.ts'
import { addressesOf, type HostileReference, hostileReferences } from './cases/hostile-references.ts'
import { refusedLinks, refusedOwnLinks } from './cases/reference-links.ts'
import { refusedUrls } from './cases/webhook-urls.ts'

// Engines run at the lowest priority: a busy machine takes its time.
vi.setConfig({ testTimeout: 240_000 })

describe('at submit', () => {
  let provider: TestProvider
  let keys: { live: string; sandbox: string }
  beforeAll(async () => {
    provider = await startTestProvider()
    // Without credits: a link that is taken ends there, and nothing is ever fetched.
    const [live, sandbox] = [await provider.createKey({ environment: 'live' }), await provider.createKey()]
    keys = { live: live.api_key, sandbox: sandbox.api_key }
  })
  afterAll(() => provider.stop())

  const own = (link: string) => link.replace('{media}', provider.settings.mediaUrl)
  const submit = (input: Record<string, unknown>, { model = 'aurora-image', key = keys.live } = {}) =>
    provider.call('POST', `/v1/models/${model}`, { key, body: { input: { prompt: 'x', ...input } } })

  it.each(['aurora-image', 'aurora-image/estimate'])(
    'each of these links is refused by its text at %s, with a live and with a sandbox key',
    async (model) => {
      const amiss: unknown[] = []
      for (const [name, link] of Object.entries({ ...refusedLinks, ...refusedOwnLinks })) {
        for (const key of Object.values(keys)) {
          const { status, body } = await submit({ image_url: own(link) }, { model, key })
          const { code, message = '' } = body.error ?? {}
          if (status !== 422 || code !== 'model_input_invalid' || !message.startsWith('input.image_url must '))
            amiss.push([name, status, body])
        }
      }
      expect(amiss).toEqual([])
    },
  )

  it('a URL refused as a webhook_url is refused as a reference', () => {
    const rules = {
      referenceAllow: [],
      mediaDir: '/nowhere',
      mediaUrl: 'https://m.example',
      baseUrl: 'https://a.example',
    }
    const taken = Object.values(refusedUrls)
      .flatMap((urls) => Object.entries(urls))
      .filter(([, link]) => {
        try {
          checkReferences({ image_url: link }, rules)
          return true
        } catch (error) {
          expect(error).toMatchObject({ status: 422, code: 'model_input_invalid' })
          return false
        }
      })
    expect(taken).toEqual([])
  })

  it.each([
    ['image_urls', 'aurora-image-edit'],
    ['image_urls', 'meridian-text-to-video'],
    ['video_urls', 'meridian-text-to-video'],
    ['audio_urls', 'meridian-text-to-video'],
  ])('the message names the place of a link in %s of %s', async (field, model) => {
    const answer = await submit({ [field]: ['https://files.example.com/1', 'http://10.0.0.1/'] }, { model })
    expect(answer).toMatchObject({
      status: 422,
      body: { error: { message: `input.${field}[1] must be an https URL` } },
    })
  })

  it('an https link and a link to the media host are accepted', async () => {
    for (const link of ['https://files.example.com/1.png?a=b', 'https://8.8.8.8/1.png', own('{media}/sandbox/1.png')]) {
      expect((await submit({ image_url: link })).status).toBe(402)
      expect((await submit({ image_url: link }, { key: keys.sandbox })).status).toBe(200)
    }
  })
})

describe('after the submit', () => {
  /** Of the engines' process: 180 MB as measured, and room for other machines. */
  const maxEngineBytes = 400_000_000

  /** Of the process that fetches, with this test's server in it: 90 MB of chunks that Node has not collected yet. */
  const maxGrowthBytes = 200_000_000

  let jobs: Awaited<ReturnType<typeof startReferenceJobs>>
  let site: Awaited<ReturnType<typeof startReferenceSite>>
  let secret: Awaited<ReturnType<typeof startReferenceSite>>
  let serve: Serve
  let mediaDir: string
  let mostGrowth = 0
  const media = 'http://127.0.0.1:4000/media'
  beforeAll(async () => {
    mediaDir = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-media-'))
    site = await startReferenceSite((response, request) => serve(response, request))
    secret = await startReferenceSite((response) => void response.end('the secret of the inside'))
    jobs = await startReferenceJobs({
      mediaDir,
      mediaUrl: media,
      baseUrl: 'http://127.0.0.1:4000',
      referenceAllow: [site.origin],
      resolve: async (name) => [...(addressesOf[name] ?? [])],
    })
  })
  afterAll(async () => {
    await jobs.stop()
    for (const { close } of [site, secret]) close()
    await fs.rm(mediaDir, { recursive: true, force: true })
  })

  const modelOf = {
    image_url: 'aurora-image',
    video_urls: 'meridian-text-to-video',
    audio_urls: 'meridian-text-to-video',
  } as const
  const runCase = async ({ field, link, serve: serving, deadlineMs }: Omit<HostileReference, 'name' | 'message'>) => {
    const places = { site: site.origin, secret: secret.origin, secretPort: secret.port, media }
    serve = (await serving?.(places)) ?? (() => expect.fail('something was fetched'))
    const given = link?.(places) ?? `${site.origin}/`
    const clip = { duration: 1, resolution: '480p', aspect_ratio: '16:9', generate_audio: true }
    const input = { prompt: 'x', ...(field === 'image_url' ? { image_url: given } : { [field]: [given], ...clip }) }
    const before = process.memoryUsage().rss
    const sampling = setInterval(() => (mostGrowth = Math.max(mostGrowth, process.memoryUsage().rss - before)), 20)
    return jobs.run(modelOf[field], input, deadlineMs).finally(() => clearInterval(sampling))
  }

  it('a picture is used, and charged', async () => {
    const bytes = await disc()
    const good = await runCase({ field: 'image_url', serve: () => (response) => void response.end(bytes) })
    expect(good).toMatchObject({ status: 'COMPLETED', spent: 4 })
  })

  // ffmpeg reads all of this one before the answer.
  const isSlow = ({ name }: HostileReference) => name === 'is a video of 100,000 frames'
  it.each(hostileReferences.filter((one) => long || !isSlow(one)))(
    'a reference that $name makes the request FAILED at once, with a refund and no leftovers',
    async ({ message, ...one }) => {
      const { message: said, ...end } = await runCase(one)
      const place = one.field === 'image_url' ? 'input.image_url' : `input.${one.field}[0]`
      expect(said.startsWith(`${place} `), said).toBe(true)
      expect(said.slice(place.length + 1)).toMatch(message)
      expect(end).toEqual({ status: 'FAILED', attempts: 1, spent: 0 })
      expect(await jobs.kept()).toEqual([])
    },
  )

  it('no internal address was reached, and memory stayed flat', async () => {
    expect(secret.connections()).toBe(0)
    expect(mostGrowth).toBeLessThan(maxGrowthBytes)
    const status = await fs.readFile(`/proc/${jobs.engines.pid()}/status`, 'utf8').catch(() => '')
    const [, peakKilobytes = 0] = /^VmHWM:\s+(\d+) kB$/m.exec(status) ?? []
    expect(Number(peakKilobytes) * 1024).toBeLessThan(maxEngineBytes)
  })
})
