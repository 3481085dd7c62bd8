import { once } from 'node:events'
import fs from 'node:fs/promises'
import net, { type AddressInfo } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { decode, findFfmpeg, type Decoding, type Ffmpeg } from '../../../src/platform/ffmpeg.ts'
import { pngOf } from '../../receiver/archive/media-stand.ts'
import { soundOfKilobytes, videoOfPng } from './crafted-media.ts'

const never = new AbortController().signal
const words = (line: string) => line.split(' ')
const frame = words('-frames:v 1 -pix_fmt gray -f rawvideo')
const sound = words('-f s16le')

const onPath = await findFfmpeg(undefined, never)
export const program = onPath?.kind === 'program' ? onPath : undefined
vi.stubEnv('PATH', '')
export const webAssembly = await findFfmpeg(undefined, never)
vi.unstubAllEnvs()

/** Tests of what each ffmpeg must do, and must refuse, with foreign files. */
export function describeDecoding(name: string, ffmpeg: Ffmpeg | undefined): void {
  describe.skipIf(!ffmpeg)(`decode with ${name} (skipped where there is none)`, () => {
    let folder: string
    beforeAll(async () => {
      folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-ffmpeg-'))
    })
    afterAll(() => fs.rm(folder, { recursive: true }))

    const decoded = async (bytes: Buffer | string, { args = frame, ...decoding }: Partial<Decoding> = {}) => {
      const file = path.join(folder, 'foreign')
      await fs.writeFile(file, bytes, { mode: 0o600 })
      const chunks: Buffer[] = []
      const write = (chunk: Buffer) => void chunks.push(chunk)
      const input = { path: file, reader: 'mov' as const }
      const end = await decode(ffmpeg!, {
        ...input,
        args,
        write,
        maxOutputBytes: 1_000_000,
        signal: never,
        ...decoding,
      })
      return { end, output: Buffer.concat(chunks) }
    }

    it('decodes a frame of a file that only its owner may read, and leaves no copy of it', async () => {
      // A process that was killed elsewhere may have left one.
      const copies = async () =>
        (await fs.readdir(os.tmpdir())).filter((name) => /^mediadock-[0-9a-f-]{36}$/.test(name))
      const before = new Set(await copies())
      const { end, output } = await decoded(videoOfPng(pngOf(20, 255)))
      expect(end).toEqual({ kind: 'done', bytes: 400 })
      expect(output).toEqual(Buffer.alloc(400, 255))
      expect((await copies()).filter((name) => !before.has(name))).toEqual([])
    })

    it('decodes sound', async () => {
      const { end, output } = await decoded(soundOfKilobytes(3), { args: sound })
      expect(end).toEqual({ kind: 'done', bytes: 3072 })
      expect(output.every((byte) => byte === 7)).toBe(true)
    })

    it('fails for 700 bytes whose index would take 1.9 GB', async () => {
      expect((await decoded(videoOfPng(pngOf(20), 80_000_000))).end).toMatchObject({ kind: 'failed' })
    })

    it('fails for a frame of more pixels than wanted', async () => {
      const args = words('-vf scale=16:16 -frames:v 1 -pix_fmt gray -f rawvideo')
      expect((await decoded(videoOfPng(pngOf(7000)), { args })).end).toMatchObject({ kind: 'failed' })
    })

    it('fails for 400 KB that decode to more bytes than wanted', async () => {
      const { end, output } = await decoded(soundOfKilobytes(100_000), { args: sound })
      expect(end).toEqual({ kind: 'failed', why: 'it wrote more than 1000000 bytes' })
      expect(output.length).toBeLessThanOrEqual(1_000_000)
    })

    it('fails for a file whose decoding takes longer than it may', async () => {
      const slow = words('-af aresample=192000:filter_size=512 -f null')
      expect((await decoded(soundOfKilobytes(100_000), { args: slow, cpuSeconds: 1 })).end).toMatchObject({
        kind: 'failed',
      })
    })

    it('follows no reference to a host or a file', async () => {
      const server = net.createServer((socket) => socket.destroy()).listen(0, '127.0.0.1')
      onTestFinished(() => void server.close())
      await once(server, 'listening')
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/video.mp4`
      const dialled = vi.fn()
      server.on('connection', dialled)
      const other = path.join(folder, 'other.mp4')
      await fs.writeFile(other, videoOfPng(pngOf(20)))
      const playlists = [url, other].flatMap((target) => [
        `ffconcat version 1.0\nfile '${target}'\n`,
        `#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n${target}\n#EXT-X-ENDLIST\n`,
      ])
      for (const playlist of playlists) {
        expect(await decoded(playlist)).toMatchObject({ end: { kind: 'failed' }, output: Buffer.alloc(0) })
      }
      expect(dialled).not.toHaveBeenCalled()
    })

    it('stops and throws when it is aborted', async () => {
      const controller = new AbortController()
      const write = () => controller.abort(new Error('taken away'))
      const aborted = decoded(soundOfKilobytes(100_000), { args: sound, write, signal: controller.signal })
      await expect(aborted).rejects.toThrow('taken away')
    })
  })
}
