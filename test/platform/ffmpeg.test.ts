import { once } from 'node:events'
import fs from 'node:fs/promises'
import net, { type AddressInfo } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { decode, findFfmpeg, type Decoding, type Ffmpeg } from '../../src/platform/ffmpeg.ts'
import { long } from '../chaos/length.ts'
import { pngOf } from '../receiver/archive/media-stand.ts'
import { soundOfKilobytes, videoOfPng } from './support/crafted-media.ts'

const never = new AbortController().signal
const words = (line: string) => line.split(' ')
const frame = words('-frames:v 1 -pix_fmt gray -f rawvideo')
const sound = words('-f s16le')

const program = await findFfmpeg(undefined, never)
vi.stubEnv('PATH', '')
const webAssembly = await findFfmpeg(undefined, never)
vi.unstubAllEnvs()
const found: [string, Ffmpeg | undefined][] = [
  ['the ffmpeg of this machine', program?.kind === 'program' ? program : undefined],
  ['the WebAssembly build', webAssembly],
]

let folder: string
beforeAll(async () => {
  folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-ffmpeg-'))
})
afterAll(() => fs.rm(folder, { recursive: true }))

describe.each(found)('decode with %s (skipped where there is none)', (_name, ffmpeg) => {
  /** ffmpeg's own limits, which both have: the slow build shows them in the long form. */
  const skipsLimits = !ffmpeg || (ffmpeg.kind === 'webassembly' && program?.kind === 'program' && !long)

  const decoded = async (bytes: Buffer | string, { args = frame, ...decoding }: Partial<Decoding> = {}) => {
    const file = path.join(folder, 'foreign')
    await fs.writeFile(file, bytes, { mode: 0o600 })
    const chunks: Buffer[] = []
    const write = (chunk: Buffer) => void chunks.push(chunk)
    const inputs = [{ path: file, reader: 'mov' as const }]
    const end = await decode(ffmpeg!, { inputs, args, write, maxOutputBytes: 1_000_000, signal: never, ...decoding })
    return { end, output: Buffer.concat(chunks) }
  }

  it.skipIf(!ffmpeg)('decodes a frame of a file that only its owner may read, and leaves no copy of it', async () => {
    const { end, output } = await decoded(videoOfPng(pngOf(20, 255)))
    expect(end).toEqual({ kind: 'done', bytes: 400 })
    expect(output).toEqual(Buffer.alloc(400, 255))
    const copies = (await fs.readdir(os.tmpdir())).filter((name) => /^mediadock-[0-9a-f-]{36}$/.test(name))
    expect(copies).toEqual([])
  })

  it.skipIf(!ffmpeg)('decodes sound', async () => {
    const { end, output } = await decoded(soundOfKilobytes(3), { args: sound })
    expect(end).toEqual({ kind: 'done', bytes: 3072 })
    expect(output.every((byte) => byte === 7)).toBe(true)
  })

  it.skipIf(skipsLimits)('fails for 700 bytes whose index would take 1.9 GB', async () => {
    expect((await decoded(videoOfPng(pngOf(20), 80_000_000))).end).toMatchObject({ kind: 'failed' })
  })

  it.skipIf(skipsLimits)('fails for a frame of more pixels than wanted', async () => {
    const args = words('-vf scale=16:16 -frames:v 1 -pix_fmt gray -f rawvideo')
    expect((await decoded(videoOfPng(pngOf(7000)), { args })).end).toMatchObject({ kind: 'failed' })
  })

  it.skipIf(!ffmpeg)('fails for 400 KB that decode to more bytes than wanted', async () => {
    const { end, output } = await decoded(soundOfKilobytes(100_000), { args: sound })
    expect(end).toEqual({ kind: 'failed', why: 'it wrote more than 1000000 bytes' })
    expect(output.length).toBeLessThanOrEqual(1_000_000)
  })

  it.skipIf(skipsLimits)('fails for a file whose decoding takes longer than it may', async () => {
    const slow = words('-af aresample=192000:filter_size=512 -f null')
    expect((await decoded(soundOfKilobytes(100_000), { args: slow, cpuSeconds: 1 })).end).toMatchObject({
      kind: 'failed',
    })
  })

  it.skipIf(!ffmpeg)('follows no reference to a host or a file', async () => {
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
    // Each format and each target, in half of the pairs where decoding is slow.
    const [first = '', , , last = ''] = playlists
    for (const playlist of skipsLimits ? [first, last] : playlists) {
      expect(await decoded(playlist)).toMatchObject({ end: { kind: 'failed' }, output: Buffer.alloc(0) })
    }
    expect(dialled).not.toHaveBeenCalled()
  })

  it.skipIf(!ffmpeg)('stops and throws when it is aborted', async () => {
    const controller = new AbortController()
    const write = () => controller.abort(new Error('taken away'))
    const aborted = decoded(soundOfKilobytes(100_000), { args: sound, write, signal: controller.signal })
    await expect(aborted).rejects.toThrow('taken away')
  })
})

describe.skipIf(process.platform === 'win32')('findFfmpeg', () => {
  const saying = async (lines: string) => {
    const file = path.join(await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-some-ffmpeg-')), 'ffmpeg')
    onTestFinished(() => fs.rm(path.dirname(file), { recursive: true }))
    await fs.chmod(path.dirname(file), 0o755)
    await fs.writeFile(file, `#!/bin/sh\ncat <<end\n${lines}\nend\n`, { mode: 0o755 })
    return file
  }

  it.each([
    ['takes a release', 'ffmpeg version 7.1.1 Copyright\nlibavcodec     61. 19.101 / 61. 19.101', { version: '7.1.1' }],
    [
      'takes a build of the development branch',
      'ffmpeg version N-118-g1 Copyright\nlibavcodec 62. 1.1 / 62. 1.1',
      { version: 'N-118-g1' },
    ],
    ['refuses one of 2018', 'ffmpeg version 4.1 Copyright\nlibavcodec     58. 35.100 / 58. 35.100', undefined],
    ['refuses another program', 'hello', undefined],
  ])('%s', async (_what, about, expected) => {
    const given = await saying(about)
    const answer = await findFfmpeg(given, never)
    expect(answer).toEqual(expected && { kind: 'program', path: given, ...expected })
  })

  it('skips unsuitable programs on the PATH', async () => {
    const old = await saying('ffmpeg version 4.1 Copyright\nlibavcodec     58. 35.100 / 58. 35.100')
    const current = await saying('ffmpeg version 7.1 Copyright\nlibavcodec     61. 1.1 / 61. 1.1')
    vi.stubEnv('PATH', `relative:${path.dirname(old)}:${path.dirname(current)}`)
    onTestFinished(() => void vi.unstubAllEnvs())
    expect(await findFfmpeg(undefined, never)).toMatchObject({ path: current })
  })

  it('is undefined if the configured one cannot be run', async () => {
    expect(await findFfmpeg('/nowhere/ffmpeg', never)).toBeUndefined()
  })
})
