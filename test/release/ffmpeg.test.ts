import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { findFfmpeg } from '../../src/platform/ffmpeg.ts'
import { describeDecoding, program, webAssembly } from '../platform/support/decoding.ts'

const never = new AbortController().signal

// The WebAssembly build is slow: where there is another, test/release/ffmpeg-webassembly.test.ts runs it.
if (program) describeDecoding('the ffmpeg of this machine', program)
else describeDecoding('the WebAssembly build', webAssembly)

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
