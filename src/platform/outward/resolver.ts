import { Resolver } from 'node:dns/promises'
import fs from 'node:fs/promises'

/** Resolves to the addresses of a name that arrive in time, or to none. */
export type Resolve = (hostname: string, timeoutMs: number) => Promise<string[]>

const hostsFile = '/etc/hosts'

/** Looks up names without the thread pool, in which four hanging lookups would block all file operations. */
export async function resolve(hostname: string, timeoutMs: number): Promise<string[]> {
  const name = hostname.toLowerCase().replace(/\.+$/, '')
  const fixed = await fromHostsFile(name)
  if (fixed.length > 0) return fixed
  const resolver = new Resolver({ timeout: timeoutMs, tries: 1 })
  const expired = setTimeout(() => resolver.cancel(), timeoutMs)
  try {
    const answers = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)])
    return answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []))
  } finally {
    clearTimeout(expired)
  }
}

async function fromHostsFile(name: string): Promise<string[]> {
  const text = await fs.readFile(hostsFile, 'utf8').catch(() => '')
  return text.split('\n').flatMap((line) => {
    const [address, ...names] = line.replace(/#.*/, '').trim().toLowerCase().split(/\s+/)
    return address !== undefined && names.includes(name) ? [address] : []
  })
}
