import { expect } from 'vitest'

/** Links of one kind differ in the ids of what they lead to: two of each kind are followed. */
const kindOf = (link: string) => link.replaceAll(/[0-9a-f]{8}-[0-9a-f-]{27}|(?<=[/=])\d+\b/g, '*')
const followedOfAKind = 2

/** Follows the links of these pages, one page deep, and fails for each that answers 4xx or 5xx. */
export async function expectNoDeadLinks(
  base: string,
  paths: readonly string[],
  headers: Record<string, string> = {},
): Promise<void> {
  const followed = new Set<string>()
  const kinds = new Map<string, number>()
  const dead: string[] = []
  const read = async (path: string) => {
    const response = await fetch(new URL(path, base), { headers: { accept: 'text/html', ...headers } })
    const isPage = response.headers.get('content-type')?.startsWith('text/html') ?? false
    return { status: response.status, text: isPage ? await response.text() : (await response.body?.cancel(), '') }
  }
  for (const path of paths) {
    const { text } = await read(path)
    for (const [, link = ''] of text.matchAll(/<a [^>]*href="(\/[^"]*)"/g)) {
      const target = link.replaceAll('&amp;', '&')
      const [kind, seen] = [kindOf(target), kinds.get(kindOf(target)) ?? 0]
      if (followed.has(target) || seen === followedOfAKind) continue
      followed.add(target)
      kinds.set(kind, seen + 1)
      const { status } = await read(target)
      if (status >= 400) dead.push(`${path} → ${target}: ${status}`)
    }
  }
  expect(dead).toEqual([])
  expect(followed.size).toBeGreaterThan(10)
}
