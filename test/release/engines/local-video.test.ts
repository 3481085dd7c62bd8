import fs from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { builtInCatalog } from '../../../src/provider/catalog/catalog-file.ts'
import { videoSize } from '../../../src/provider/engines/brief.ts'
import { createLocalVideoEngine } from '../../../src/provider/engines/local-video.ts'
import { long } from '../../chaos/length.ts'
import { fileOf, filesBelow, runEngine, temporaryFolder, videoOf } from '../../provider/engines/engine-run.ts'
import { probe } from '../../provider/engines/probe.ts'

const engine = createLocalVideoEngine()

async function film(input: Record<string, unknown>) {
  const { output, mediaDir, reported } = await runEngine(engine, { input })
  const video = videoOf(output)
  const file = fileOf(mediaDir, video.url)
  return { video, file, reported, mediaDir, probed: await probe(file) }
}

describe('local-video', () => {
  const clips: [input: { duration: number } & Record<string, unknown>, width: number, height: number][] = [
    [{ duration: long ? 7 : 1, resolution: '480p', aspect_ratio: '9:16' }, 480, 854],
    // Two pictures, one after the other: more than one takes nine seconds. The longest takes a core a quarter of a minute.
    [{ duration: long ? 30 : 9, resolution: '480p', aspect_ratio: 'adaptive', generate_audio: true }, 854, 480],
    [{ duration: 4, resolution: '480p', aspect_ratio: '16:9' }, 854, 480],
    [{ duration: 4, resolution: '720p', aspect_ratio: '21:9', generate_audio: true }, 1680, 720],
    [{ duration: 4, resolution: '1080p', aspect_ratio: '1:1' }, 1080, 1080],
  ]
  it.each(clips.slice(0, long ? undefined : 2))(
    'makes an H.264 clip that plays and reports progress, for %o',
    async (input, width, height) => {
      const { video, probed, reported } = await film({ prompt: 'a quiet bay', ...input })
      expect(video).toMatchObject({ width, height, duration: input.duration })
      expect(probed.video).toMatch(/^h264 .*yuv420p/)
      expect(probed).toMatchObject({ width, height, frames: input.duration * 24 })
      // An AAC track ends on a packet of 1,024 samples.
      expect(Math.abs(probed.seconds - input.duration)).toBeLessThan(0.06)
      if ('generate_audio' in input) expect(probed.audio).toMatch(/^aac .*44100 Hz, stereo/)
      else expect(probed.audio).toBeUndefined()

      const progress = reported.map((report) => report.progress)
      expect(progress).toEqual(progress.toSorted((a, b) => a - b))
      expect(progress.at(-1)).toBe(100)
      // The encoder tells its progress twice a second.
      if (input.duration >= 9) expect(progress.some((percent) => percent > 25 && percent < 95)).toBe(true)
      const sound = 'generate_audio' in input ? 'with sound' : 'without sound'
      expect(reported[0]?.line).toBe(`making ${input.duration} s of ${width}x${height} ${sound}`)
    },
  )

  it('returns the same bytes for the same input, with the index first, and leaves no other file', async () => {
    const input = { prompt: 'a quiet bay', duration: long ? 4 : 1, resolution: '480p', generate_audio: true }
    const [first, second] = [await film(input), await film(input)]
    const bytes = await fs.readFile(first.file)
    expect(bytes.equals(await fs.readFile(second.file))).toBe(true)
    expect(bytes.indexOf('moov')).toBeLessThan(bytes.indexOf('mdat'))
    expect(await filesBelow(first.mediaDir)).toHaveLength(1)
  })

  it('kills the encoder when the job is aborted, and leaves no file', async () => {
    const controller = new AbortController()
    const reason = new Error('taken away')
    const mediaDir = await temporaryFolder()
    let last = 0
    const onReport = (progress: number) => {
      last = progress
      if (progress > 25) controller.abort(reason)
    }
    const run = engine(
      {
        requestId: 'abort-me',
        model: 'm',
        input: { prompt: 'a', duration: 30, resolution: '480p' },
        references: [],
        mediaDir,
        mediaUrl: '',
      },
      async (progress) => onReport(progress),
      controller.signal,
    )
    await expect(run).rejects.toBe(reason)
    // Cut in the middle, not waited for.
    expect(last).toBeLessThan(90)
    expect(await filesBelow(mediaDir)).toEqual([])
  })

  it('removes leftovers of a dead worker for the same request', async () => {
    const mediaDir = await temporaryFolder()
    await fs.mkdir(path.join(mediaDir, 'again', '.scratch-dead'), { recursive: true })
    await fs.writeFile(path.join(mediaDir, 'again', '.scratch-dead', 'layer-0.png'), '')
    const job = {
      requestId: 'again',
      model: 'm',
      input: { prompt: 'a', duration: 1, resolution: '480p' },
      references: [],
      mediaDir,
      mediaUrl: '',
    }
    await engine(job, async () => {}, new AbortController().signal)
    expect(await filesBelow(mediaDir)).toEqual([expect.stringMatching(/^again\/video-[0-9a-f]{16}\.mp4$/)])
  })

  it("fails with the report's error, and kills the encoder, when reporting progress fails", async () => {
    const failing = engine(
      {
        requestId: 'lost',
        model: 'm',
        input: { prompt: 'a', duration: 30, resolution: '480p' },
        references: [],
        mediaDir: await temporaryFolder(),
        mediaUrl: '',
      },
      async (progress) => {
        if (progress > 25) throw new Error('the lease is lost')
      },
      new AbortController().signal,
    )
    await expect(failing).rejects.toThrow('the lease is lost')
  })
})

describe('videoSize', () => {
  it('exists and is even for every ratio and resolution in the catalog', () => {
    for (const { input_schema: schema } of [...builtInCatalog().values()].filter(({ type }) => type === 'video')) {
      for (const ratio of schema['aspect_ratio']?.enum ?? ['16:9']) {
        for (const resolution of schema['resolution']?.enum ?? ['720p']) {
          const size = videoSize({ aspect_ratio: String(ratio), resolution: String(resolution) })
          expect([size.width % 2, size.height % 2]).toEqual([0, 0])
        }
      }
    }
  })
})
