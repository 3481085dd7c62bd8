import fs from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import type { Reference } from '../../../src/provider/engines/engine.ts'
import { messages } from '../../../src/provider/messages/messages.ts'
import { createReferences } from '../../../src/provider/references/references.ts'
import { temporaryFolder } from '../engines/engine-run.ts'
import { disc } from '../engines/reference-files.ts'
import { type Serve, startReferenceSite } from '../support/reference-site.ts'

async function referencesFrom(serve: Serve, limits: { maxBytes?: number; maxSeconds?: number } = {}) {
  const site = await startReferenceSite(serve)
  onTestFinished(site.close)
  const mediaDir = await temporaryFolder()
  const references = createReferences({
    mediaDir,
    mediaUrl: 'http://127.0.0.1:4000/media',
    baseUrl: 'http://127.0.0.1:4000',
    referenceAllow: [site.origin],
    resolve: async () => [],
    ...limits,
  })
  onTestFinished(references.close)
  const gather = <T>(input: Record<string, string | string[]>, work: (given: Reference[]) => Promise<T>, claims = 1) =>
    references.withFiles({ id: 'job', claims, input }, new AbortController().signal, work)
  const kept = () => fs.readdir(path.join(mediaDir, '.references')).catch(() => [])
  return { ...site, mediaDir, gather, kept }
}

const pass = async (given: Reference[]) => given

describe('the references of a job', () => {
  it('are passed as private files in input order, typed by content, and removed afterwards', async () => {
    const picture = await disc()
    const { origin, gather, kept } = await referencesFrom(
      (response) => void response.setHeader('content-type', 'text/html').end(picture),
    )
    const input = {
      image_url: `${origin}/first`,
      prompt: 'a bay',
      image_urls: [1, 2, 3, 4, 5].map((at) => `${origin}/${at}`),
    }
    const given = await gather(input, async (references) => {
      expect(await kept()).toEqual(['job.1'])
      for (const { path: file } of references) {
        expect(await fs.readFile(file)).toEqual(picture)
        expect((await fs.stat(file)).mode & 0o077).toBe(0)
      }
      return references
    })
    expect(given.map(({ field, position, kind, contentType }) => [field, position, kind, contentType])).toEqual([
      ['image_url', 0, 'image', 'image/png'],
      ...[0, 1, 2, 3, 4].map((at) => ['image_urls', at, 'image', 'image/png']),
    ])
    expect(await kept()).toEqual([])
  })

  it('are removed when the job fails, and leftovers of a dead process when the job runs again', async () => {
    const picture = await disc()
    const { origin, gather, kept, mediaDir } = await referencesFrom((response) => void response.end(picture))
    const input = { image_url: `${origin}/1` }
    await fs.mkdir(path.join(mediaDir, '.references', 'job.dead'), { recursive: true })
    await fs.mkdir(path.join(mediaDir, '.references', 'other.alive'))
    const failing = gather(input, async () => {
      expect(new Set(await kept())).toEqual(new Set(['job.1', 'other.alive']))
      throw new Error('the engine broke')
    })
    await expect(failing).rejects.toThrow('the engine broke')
    expect(await kept()).toEqual(['other.alive'])
  })

  it('follow at most three redirects, each to an allowed address', async () => {
    const picture = await disc()
    const { origin, gather } = await referencesFrom((response, { url = '' }) => {
      const left = Number(url.slice(1))
      if (left === 0) return void response.end(picture)
      response.writeHead(302, { location: `/${left - 1}` }).end()
    })
    expect(await gather({ image_url: `${origin}/3` }, pass)).toHaveLength(1)
    await expect(gather({ image_url: `${origin}/4` }, pass)).rejects.toThrow('input.image_url could not be fetched')
  })

  it('stop being fetched when one of them fails', async () => {
    let isCut = false
    const { origin, gather, kept } = await referencesFrom(async (response, { url }) => {
      if (url === '/hangs') return void response.once('close', () => (isCut = true))
      await delay(50)
      response.writeHead(404).end()
    })
    const fetching = gather({ image_urls: [`${origin}/hangs`, `${origin}/missing`] }, pass)
    await expect(fetching).rejects.toThrow('input.image_urls[1] could not be fetched: the answer was 404')
    await expect.poll(() => isCut).toBe(true)
    expect(await kept()).toEqual([])
  })

  it('are refused when they are too large together', async () => {
    const picture = await disc()
    const serve: Serve = (response) => void response.end(picture)
    const { origin, gather, kept } = await referencesFrom(serve, { maxBytes: picture.length * 5 - 1 })
    const links = [1, 2, 3, 4, 5].map((at) => `${origin}/${at}`)
    expect(await gather({ image_urls: links.slice(1) }, pass)).toHaveLength(4)
    await expect(gather({ image_urls: links }, pass)).rejects.toThrow(messages.en.references_too_large)
    expect(await kept()).toEqual([])
  })

  it('are refused when they take too long together', async () => {
    const { origin, gather } = await referencesFrom(() => {}, { maxSeconds: 0.05 })
    await expect(gather({ image_url: `${origin}/hangs` }, pass)).rejects.toThrow(
      'the references took longer than 0.05 s to fetch together',
    )
  })

  it('of our own media host are read from the media folder, without a request', async () => {
    const picture = await disc()
    const { mediaDir, gather } = await referencesFrom(() => expect.fail('something was fetched'))
    await fs.mkdir(path.join(mediaDir, 'done'))
    await fs.writeFile(path.join(mediaDir, 'done', 'image-0-0123456789abcdef.png'), picture)
    const given = await gather(
      { image_url: 'http://127.0.0.1:4000/media/done/image-0-0123456789abcdef.png' },
      async ([one]) => fs.readFile(one?.path ?? ''),
    )
    expect(given).toEqual(picture)
    await expect(gather({ image_url: 'http://127.0.0.1:4000/media/done/other.png' }, pass)).rejects.toThrow(
      'is not on the media host',
    )
  })

  it('of our own media host may be missing while the disk is slow, without an error outside of the job', async () => {
    const { gather } = await referencesFrom(() => expect.fail('something was fetched'))
    const { open } = fs
    const slow = vi.spyOn(fs, 'open').mockImplementation(async (...given) => {
      await delay(50)
      return open(...given)
    })
    onTestFinished(() => slow.mockRestore())
    await expect(gather({ image_url: 'http://127.0.0.1:4000/media/done/other.png' }, pass)).rejects.toThrow(
      'is not on the media host',
    )
  })
})
