import fs from 'node:fs/promises'
import path from 'node:path'
import type { Input } from '../catalog/input.ts'
import type { Reference } from '../engines/engine.ts'
import { createReferenceFetcher, type FetcherOptions } from './reference-fetcher.ts'
import { referencesIn } from './reference-links.ts'

/** Hidden, so that it is never served. */
const folderName = '.references'
/** More would hold up other requests of this process; fewer would take a minute for the 30 pictures of one request. */
const fetchedAtOnce = 4
/** Longer than a generation may take, its fetching included. */
const leftoverAfterMs = 3_600_000

export type ReferencedJob = {
  id: string
  /** Names this run: a run that lost its lease never removes the files of the next one. */
  claims: number
  input: Input
}

export type References = {
  /** Runs `work` with the files behind the links of an input, which are removed when it ends. */
  withFiles: <T>(job: ReferencedJob, signal: AbortSignal, work: (references: Reference[]) => Promise<T>) => Promise<T>
  close: () => Promise<void>
}

/** Keeps the references of running jobs, each job's in a private folder of its own. */
export function createReferences(options: FetcherOptions): References {
  const { mediaDir } = options
  const fetcher = createReferenceFetcher(options)

  const withFiles: References['withFiles'] = async ({ id, claims, input }, signal, work) => {
    const links = referencesIn(input)
    if (links.length === 0) return work([])
    const folder = path.join(path.resolve(mediaDir), folderName, `${id}.${claims}`)
    // Left by a run whose process died.
    await removeFolders(mediaDir, async (name) => name.startsWith(`${id}.`))
    await fs.mkdir(folder, { recursive: true, mode: 0o700 })
    try {
      const references: Reference[] = []
      for (let at = 0; at < links.length; at += fetchedAtOnce) {
        const some = links
          .slice(at, at + fetchedAtOnce)
          .map((reference, place) => ({ reference, to: path.join(folder, String(at + place)) }))
        references.push(
          ...(await allOrNone(
            signal,
            some.map((one) => (abort: AbortSignal) => fetcher.fetch({ ...one, signal: abort })),
          )),
        )
      }
      return await work(references)
    } finally {
      await fs.rm(folder, { recursive: true, force: true })
    }
  }
  return { withFiles, close: fetcher.close }
}

/** Runs all side by side; the first failure stops the others, and is thrown when they have ended. */
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

/** Removes the references of jobs that no process ran again after theirs died. */
export async function removeLeftReferences(mediaDir: string, nowMs: number): Promise<void> {
  await removeFolders(mediaDir, async (_name, folder) => {
    const { mtimeMs } = await fs.stat(folder).catch(() => ({ mtimeMs: nowMs }))
    return nowMs - mtimeMs >= leftoverAfterMs
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
