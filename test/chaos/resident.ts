import fs from 'node:fs/promises'
import { onTestFinished } from 'vitest'

const sampleMs = 100

/** Resident memory of a process in MiB; Linux only. */
export async function residentMebibytes(pid: number): Promise<number> {
  const status = await fs.readFile(`/proc/${pid}/status`, 'utf8')
  return Number(status.match(/VmRSS:\s+(\d+) kB/)?.[1]) / 1024
}

/** The most that it has had since this was called, or since it was forgotten. */
export function watchResident(pid: () => number): { most: () => number; forget: () => void } {
  let most = 0
  const sample = async () => (most = Math.max(most, await residentMebibytes(pid())))
  const sampling = setInterval(() => void sample().catch(() => {}), sampleMs)
  onTestFinished(() => clearInterval(sampling))
  return { most: () => most, forget: () => (most = 0) }
}
