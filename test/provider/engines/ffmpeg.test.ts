import fs from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { EngineError } from '../../../src/provider/engines/engine.ts'
import { locateFfmpeg, runFfmpeg } from '../../../src/provider/engines/ffmpeg.ts'
import { createLocalAudioEngine } from '../../../src/provider/engines/local-audio.ts'
import { createLocalVideoEngine } from '../../../src/provider/engines/local-video.ts'
import { runEngine, temporaryFolder } from './engine-run.ts'

const never = new AbortController().signal
const endless = '-re -f lavfi -i testsrc=size=64x64:rate=5 -f null -'.split(' ')

describe('runFfmpeg', () => {
  it('kills a run that exceeds the deadline', async () => {
    const run = runFfmpeg({ binary: await locateFfmpeg(undefined), args: endless, signal: never, deadlineSeconds: 0.4 })
    await expect(run).rejects.toThrow('the encoder did not finish within 0.4 s')
  })

  it("logs ffmpeg's output, and keeps it out of the message", async () => {
    const args = ['-i', path.join(await temporaryFolder(), 'missing.png'), 'out.mp4']
    const error = await runFfmpeg({
      binary: await locateFfmpeg(undefined),
      args,
      signal: never,
      deadlineSeconds: 10,
    }).catch((thrown) => thrown)
    expect(error).toBeInstanceOf(EngineError)
    expect(error.message).toBe('the encoder failed')
    expect(String(error.cause)).toContain('missing.png: No such file')
  })

  it('does not start when the job is aborted already', async () => {
    const run = runFfmpeg({
      binary: '/nowhere',
      args: [],
      signal: AbortSignal.abort(new Error('taken away')),
      deadlineSeconds: 10,
    })
    await expect(run).rejects.toThrow('taken away')
  })

  it('reports that ffmpeg cannot be started, without its path', async () => {
    const run = runFfmpeg({ binary: '/nowhere/ffmpeg', args: [], signal: never, deadlineSeconds: 10 })
    await expect(run).rejects.toThrow(new EngineError('ffmpeg cannot be started on the server; video and mp3 need it'))
  })

  it('bounds the kept error output', async () => {
    const binary = path.join(await temporaryFolder(), 'flood')
    await fs.writeFile(
      binary,
      `#!/bin/sh\ni=0; while [ $i -lt 5000 ]; do echo "line $i of many" >&2; i=$((i+1)); done; exit 3\n`,
      {
        mode: 0o755,
      },
    )
    const error = await runFfmpeg({ binary, args: [], signal: never, deadlineSeconds: 10 }).catch((thrown) => thrown)
    expect(String(error.cause)).toContain('ffmpeg ended with 3')
    expect(String(error.cause)).toContain('line 4999 of many')
    expect(String(error.cause).length).toBeLessThan(4200)
  })
})

describe('without an ffmpeg', () => {
  const missing = '/nowhere/ffmpeg'

  it.each([
    ['video', createLocalVideoEngine(missing), {}],
    ['mp3', createLocalAudioEngine(missing), { output_format: 'mp3' }],
  ])('%s fails with a message for the client', async (_what, engine, input) => {
    const error = await runEngine(engine, { input: { prompt: 'a', ...input } }).catch((thrown) => thrown)
    expect(error).toBeInstanceOf(EngineError)
    expect(error.message).toBe('there is no ffmpeg that can be run on the server; video and mp3 need it')
  })

  it('WAV works without it', async () => {
    const { output } = await runEngine(createLocalAudioEngine(missing), { input: { prompt: 'a', duration: 1 } })
    expect(output).toHaveProperty('audio.duration', 1)
  })
})
