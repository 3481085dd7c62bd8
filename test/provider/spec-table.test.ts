import fs from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { specRows } from './spec-rows.ts'

describe.each(Object.entries(specRows))('spec, %s', (_section, rows) => {
  it.each(rows)('%s (%s.test.ts)', async (_says, file, test) => {
    const source = await fs.readFile(path.join(import.meta.dirname, `${file}.test.ts`), 'utf8')
    const names = [...source.matchAll(/(?:it|it\.each\([\s\S]*?\))\(\s*(['`])(.*?)\1,|^\s+\[(['"])(.*?)\3/gm)].map((match) => match[0])
    // Quotes inside a name are escaped in the source.
    expect(names.join('\n').replaceAll("\\'", "'")).toContain(test)
  })
})
