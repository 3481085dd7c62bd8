import fs from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'

const root = path.resolve(import.meta.dirname, '../..')

// A promise is worth as much as the test that holds it.
describe.each(['docs/guarantees.md', 'SECURITY.md'])('%s', (document) => {
  it('names tests that exist', async () => {
    const text = await fs.readFile(path.join(root, document), 'utf8')
    const named = [...new Set([...text.matchAll(/\btest\/[\w./-]+\.ts\b/g)].map(([file]) => file))]
    expect(named.length).toBeGreaterThan(5)
    const missing = await Promise.all(
      named.map(async (file) => ((await fs.stat(path.join(root, file)).catch(() => undefined)) ? [] : [file])),
    )
    expect(missing.flat()).toEqual([])
  })

  it('has a test for each promise', async () => {
    const text = await fs.readFile(path.join(root, document), 'utf8')
    const promises = /\| promise \| held by \|\n\|[-| ]+\|\n((?:\|.*\n)+)/.exec(text)?.[1]?.trim().split('\n') ?? []
    expect(promises.length).toBeGreaterThan(5)
    expect(promises.filter((line) => !/\btest\/[\w./-]+\.test\.ts\b/.test(line))).toEqual([])
  })
})
