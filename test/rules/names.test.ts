import fs from 'node:fs/promises'
import path from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'

const src = path.resolve(import.meta.dirname, '../../src')

/** The folders of `src/` that run in one program. Code that starts both belongs to the receiver. The client runs in a user's service. */
const programs = {
  receiver: /^(?!provider\/|client\/)/,
  client: /^client\//,
  provider: /^(?:provider|platform|wire)\//,
}

/** Words for which the glossary (docs/contributing/words.md) has its own. */
const unwanted = /\b(?:told|asked|heard|said|deeds?|doing|taken in)\b/

type Exported = { file: string; kind: string; name: string }

describe('exported names', () => {
  let files: string[]
  let exported: Exported[]

  beforeAll(async () => {
    files = (await fs.readdir(src, { recursive: true })).filter((file) => /\.(?:ts|js|css)$/.test(file))
    exported = (await Promise.all(files.filter((file) => file.endsWith('.ts')).map(exportsOf))).flat()
  })

  it('are found', () => {
    expect(exported).toContainEqual({ file: 'receiver/domain/delivery.ts', kind: 'type', name: 'Delivery' })
    expect(exported).toContainEqual({ file: 'platform/http/http.ts', kind: 'class', name: 'HttpError' })
    expect(exported).toContainEqual({ file: 'receiver/fetching/call-budget.ts', kind: 'function', name: 'takeCall' })
    expect(exported).toContainEqual({ file: 'receiver/domain/schema.ts', kind: 'const', name: 'deliveries' })
  })

  it.each(Object.entries(programs))('of types are unique in the %s', (_program, meets) => {
    const types = exported.filter(
      ({ file, kind }) => ['type', 'interface', 'class', 'enum'].includes(kind) && meets.test(file),
    )
    const shared = [...Map.groupBy(types, ({ name }) => name)].filter(([, { length }]) => length > 1)
    expect(shared.map(([name, all]) => `${name}: ${all.map(({ file }) => file).join(', ')}`)).toEqual([])
  })

  it('contain no word that the glossary replaces', () => {
    expect(exported.filter(({ name }) => unwanted.test(wordsOf(name)))).toEqual([])
  })

  it('of files contain none either', () => {
    expect(files.filter((file) => unwanted.test(wordsOf(file)))).toEqual([])
  })

  it.each([
    ['askedWords', true],
    ['onAsked', true],
    ['takenIn', true],
    ['NOT_ASKED', true],
    ['request-asked.ts', true],
    ['Deed', true],
    ['takenInto', false],
    ['masked', false],
    ['taskedWith', false],
    ['indeed', false],
  ])('%s: replaced %s', (name, isUnwanted) => {
    expect(unwanted.test(wordsOf(name))).toBe(isUnwanted)
  })
})

async function exportsOf(file: string): Promise<Exported[]> {
  const text = await fs.readFile(path.join(src, file), 'utf8')
  const declared = text.matchAll(
    /^export (?:async |abstract )?(type|interface|class|enum|function|const|let)\*? (\w+)/gm,
  )
  return [...declared].map(([, kind = '', name = '']) => ({ file, kind, name }))
}

/** `onRequestAsked` and `request-asked.ts` in words, all small. */
function wordsOf(name: string): string {
  return name
    .replaceAll(/([a-z0-9])([A-Z])/g, '$1 $2')
    .replaceAll(/[^A-Za-z0-9]+/g, ' ')
    .toLowerCase()
}
