import fs from 'node:fs/promises'

/* What processes cost, as the kernel of Linux counts it; elsewhere NaN, which tables show as a dash. */

const ticksPerSecond = 100

type Stat = { pid: number; parent: number; cpuSeconds: number; reapedCpuSeconds: number }

async function statOf(pid: number | string): Promise<Stat | undefined> {
  const text = await fs.readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined)
  // The name before the last bracket may hold anything.
  const fields = text?.slice(text.lastIndexOf(')') + 2).split(' ')
  if (!fields) return undefined
  const at = (field: number) => Number(fields[field - 3])
  return {
    pid: Number(pid),
    parent: at(4),
    cpuSeconds: (at(14) + at(15)) / ticksPerSecond,
    reapedCpuSeconds: (at(16) + at(17)) / ticksPerSecond,
  }
}

export async function cpuSecondsOf(pid: number): Promise<number> {
  return (await statOf(pid))?.cpuSeconds ?? NaN
}

/** Of a server's first process, its children, and those that have ended. */
export async function cpuSecondsOfServer(pid: number): Promise<number> {
  const entries = await fs.readdir('/proc').catch(() => [])
  const all = await Promise.all(entries.filter((name) => /^\d+$/.test(name)).map(statOf))
  const server = await statOf(pid)
  if (!server) return NaN
  return all.reduce(
    (sum, one) => sum + (one?.parent === pid ? one.cpuSeconds : 0),
    server.cpuSeconds + server.reapedCpuSeconds,
  )
}

export async function parentOf(pid: number): Promise<number> {
  return (await statOf(pid))?.parent ?? NaN
}

async function statusMb(pid: number, field: 'VmRSS' | 'VmHWM'): Promise<number> {
  const text = await fs.readFile(`/proc/${pid}/status`, 'utf8').catch(() => '')
  return Number(new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(text)?.[1] ?? NaN) / 1024
}

export const rssMbOf = (pid: number) => statusMb(pid, 'VmRSS')
/** The most it has had at any time. */
export const peakRssMbOf = (pid: number) => statusMb(pid, 'VmHWM')
