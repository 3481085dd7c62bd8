import { expect } from 'vitest'

/** Follows every link of these pages once, one page deep, and fails for each that answers 4xx or 5xx. */
export async function expectNoDeadLinks(
  base: string,
  paths: readonly string[],
  headers: Record<string, string> = {},
): Promise<void> {
  const followed = new Map<string, number>()
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
      if (followed.has(target)) continue
      const { status } = await read(target)
      followed.set(target, status)
      if (status >= 400) dead.push(`${path} → ${target}: ${status}`)
    }
  }
  expect(dead).toEqual([])
  expect(followed.size).toBeGreaterThan(10)
}
