import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import type { Engine, Reference } from '../../../src/provider/engines/engine.ts'
import { outputSchema, type Output } from '../../../src/wire/schemas.ts'

export const mediaUrl = 'https://media.example/media'

type Reported = { progress: number; line: string | undefined }

export async function temporaryFolder(): Promise<string> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-media-'))
  onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
  return folder
}

type Run = {
  model?: string
  input: Record<string, unknown>
  references?: Reference[]
  signal?: AbortSignal
  onReport?: (progress: number) => void
}

/** Runs one job in a new folder. Returns the output, validated by the wire's schema, and the reports. */
export async function runEngine(engine: Engine, { model = 'a-model', input, references = [], signal, onReport }: Run) {
  const mediaDir = await temporaryFolder()
  const reported: Reported[] = []
  const requestId = randomUUID()
  const output = await engine(
    { requestId, model, input, references, mediaDir, mediaUrl },
    async (progress, line) => {
      reported.push({ progress, line })
      onReport?.(progress)
    },
    signal ?? new AbortController().signal,
  )
  outputSchema.parse(output)
  return { output, reported, mediaDir, requestId }
}

/** The file that a link in the output stands for. */
export function fileOf(mediaDir: string, url: string): string {
  if (!url.startsWith(`${mediaUrl}/`)) throw new Error(`not a link to the media host: ${url}`)
  return path.join(mediaDir, url.slice(mediaUrl.length + 1))
}

export function imagesOf(output: Output) {
  if (!('images' in output)) throw new Error('no images in the output')
  return output.images
}

export function videoOf(output: Output) {
  if (!('video' in output)) throw new Error('no video in the output')
  return output.video
}

export function audioOf(output: Output) {
  if (!('audio' in output)) throw new Error('no audio in the output')
  return output.audio
}

/** Everything below a folder, hidden files too. */
export async function filesBelow(folder: string): Promise<string[]> {
  const entries = await fs.readdir(folder, { recursive: true, withFileTypes: true })
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)))
}
