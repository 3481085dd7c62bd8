import fs from 'node:fs/promises'
import path from 'node:path'
import type { Input } from '../catalog/input.ts'
import { EngineError, type Reference } from '../engines/engine.ts'
import { createReferenceFetcher, type FetcherOptions } from './reference-fetcher.ts'
import { type ReferenceLink, referencesIn } from './reference-links.ts'

/** A hidden folder, so that it is never served. */
const folderName = '.references'
/** With two, 30 pictures of 5 s each would exceed the minute of one request; with four they take 40 s. */
const fetchedAtOnce = 4

export type ReferencedJob = {
  id: string
  /** Part of the folder's name: the end of a run that lost its lease does not remove the files of the next run. */
  claims: number
  input: Input
}

export type References = ReturnType<typeof createReferences>

/** Keeps the references of each running job in a private folder. */
export function createReferences({
  // Limits what one request fetches: four full videos or twenty full pictures.
  maxBytes = 400_000_000,
  // The limit for all references of a request. Most of the 15 minutes of a generation are left for its engine.
  maxSeconds = 60,
  ...options
}: FetcherOptions & { maxBytes?: number; maxSeconds?: number }) {
  const { mediaDir } = options
  const fetcher = createReferenceFetcher(options)

  const fetchAll = async (links: readonly ReferenceLink[], folder: string, signal: AbortSignal) => {
    const allowance = { bytes: maxBytes }
    const deadline = AbortSignal.timeout(maxSeconds * 1000)
    const files = links.map((reference, at) => ({ reference, to: path.join(folder, String(at)), allowance }))
    const references: Reference[] = []
    try {
      for (let at = 0; at < files.length; at += fetchedAtOnce) {
        const some = files.slice(at, at + fetchedAtOnce)
        const runs = some.map((file) => (abort: AbortSignal) => fetcher.fetch({ ...file, signal: abort }))
        references.push(...(await allOrNone(AbortSignal.any([signal, deadline]), runs)))
      }
    } catch (error) {
      if (signal.aborted || !deadline.aborted) throw error
      throw new EngineError(`the references took longer than ${maxSeconds} s to fetch together`, { cause: error })
    }
    return references
  }

  /** Runs `work` with the files of an input's links. Removes the files when it ends. */
  const withFiles = async <T>(
    { id, claims, input }: ReferencedJob,
    signal: AbortSignal,
    work: (references: Reference[]) => Promise<T>,
  ): Promise<T> => {
    const links = referencesIn(input)
    if (links.length === 0) return work([])
    const folder = path.join(path.resolve(mediaDir), folderName, `${id}.${claims}`)
    // Removes the folder of a run whose process died.
    await removeFolders(mediaDir, async (name) => name.startsWith(`${id}.`))
    await fs.mkdir(folder, { recursive: true, mode: 0o700 })
    try {
      return await work(await fetchAll(links, folder, signal))
    } finally {
      await fs.rm(folder, { recursive: true, force: true })
    }
  }
  return { withFiles, close: fetcher.close }
}

/** Runs all at once. The first failure stops the others, and is thrown after they ended. */
async function allOrNone<T>(signal: AbortSignal, runs: readonly ((signal: AbortSignal) => Promise<T>)[]): Promise<T[]> {
  const failed = new AbortController()
  const either = AbortSignal.any([signal, failed.signal])
  const running = runs.map((run) =>
    run(either).catch((error: unknown) => {
      failed.abort(error)
      throw error
    }),
  )
  await Promise.allSettled(running)
  failed.signal.throwIfAborted()
  return Promise.all(running)
}

/** Removes references left by dead processes. */
export async function removeLeftReferences(mediaDir: string, nowMs: number): Promise<void> {
  await removeFolders(mediaDir, async (_name, folder) => {
    const { mtimeMs } = await fs.stat(folder).catch(() => ({ mtimeMs: nowMs }))
    // Far longer than the 15 minutes of a generation.
    return nowMs - mtimeMs >= 3_600_000
  })
}

async function removeFolders(
  mediaDir: string,
  isLeft: (name: string, folder: string) => Promise<boolean>,
): Promise<void> {
  const root = path.join(path.resolve(mediaDir), folderName)
  for (const name of await fs.readdir(root).catch(() => [])) {
    const folder = path.join(root, name)
    if (await isLeft(name, folder)) await fs.rm(folder, { recursive: true, force: true })
  }
}
