import { execFileSync } from 'node:child_process'
import { globSync } from 'node:fs'
import fs from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import manifest from '../../package.json' with { type: 'json' }

const root = path.resolve(import.meta.dirname, '../..')
const read = (file: string) => fs.readFile(path.join(root, file), 'utf8')

/** The text without code, in which nothing is a link or a heading. */
const proseOf = (text: string) =>
  text.replaceAll(/^(```+)[^]*?^\1$/gm, '').replaceAll(/`[^`\n]*`/g, (code) => code.replaceAll(/[[\]#]/g, ''))

/** The anchors of a page, as GitHub makes them of its headings. */
function anchorsOf(text: string): Set<string> {
  const anchors = new Set<string>()
  for (const [, heading = ''] of proseOf(text).matchAll(/^#{1,6} +(.+)$/gm)) {
    const words = heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase()
    const slug = words
      .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
      .trim()
      .replaceAll(/\s/g, '-')
    let anchor = slug
    for (let again = 1; anchors.has(anchor); again += 1) anchor = `${slug}-${again}`
    anchors.add(anchor)
  }
  return anchors
}

/** Links to files and anchors of this repository, without those to the web. */
function linksOf(text: string): string[] {
  const links = [...proseOf(text).matchAll(/\[[^\]]*\]\(<?([^)\s>]+)>?\)/g)].map(([, target = '']) => target)
  return links.filter((target) => !/^[a-z]+:/.test(target))
}

const pages = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '*.md'], {
  cwd: root,
  encoding: 'utf8',
})
  .trim()
  .split('\n')

describe('a link', () => {
  it.each(pages)('of %s leads to an existing file and heading', async (page) => {
    const lost = await Promise.all(
      linksOf(await read(page)).map(async (link) => {
        const [file = '', anchor] = link.split('#')
        const target = file === '' ? page : path.join(path.dirname(page), file)
        if (!(await fs.stat(path.join(root, target)).catch(() => undefined))) return [link]
        return anchor === undefined || anchorsOf(await read(target)).has(anchor) ? [] : [link]
      }),
    )
    expect(lost.flat()).toEqual([])
  })

  it('is found, and so is an anchor', async () => {
    expect(linksOf(await read('docs/README.md')).length).toBeGreaterThan(30)
    expect(anchorsOf('# A `B`, c: d\n## a b-c\n## a b-c\n```\n# none\n```\n')).toEqual(
      new Set(['a-b-c-d', 'a-b-c', 'a-b-c-1']),
    )
    expect(linksOf('[a](b.md#c) `[no](x)` [web](https://example.com) ![p](q.png)')).toEqual(['b.md#c', 'q.png'])
  })
})

it('docs/README.md links to every page', async () => {
  const links = linksOf(await read('docs/README.md')).map((link) => link.split('#')[0])
  const expected = pages.filter((page) => page.startsWith('docs/') && page !== 'docs/README.md')
  expect(expected.filter((page) => !links.includes(path.relative('docs', page)))).toEqual([])
})

it('a page of the package links only to files of the package', async () => {
  const always = ['README.md', 'LICENSE', 'package.json']
  const packed = [
    ...globSync(
      manifest.files.flatMap((one) => [one, `${one}/**`]),
      { cwd: root },
    ),
    ...always,
  ]
  const lost = await Promise.all(
    packed
      .filter((file) => file.endsWith('.md') && !file.startsWith('node_modules/'))
      .map(async (file) => {
        const targets = linksOf(await read(file)).map((link) => link.split('#')[0] ?? '')
        const wanted = targets.filter((target) => target !== '').map((target) => path.join(path.dirname(file), target))
        return wanted.filter((target) => !packed.includes(target)).map((target) => `${file}: ${target}`)
      }),
  )
  expect(lost.flat()).toEqual([])
})

it('no page has more than 250 lines, and the README fewer than 200', async () => {
  const long = await Promise.all(
    pages
      .filter((page) => page.startsWith('docs/') && page !== 'docs/specification.md')
      .map(async (page) => ((await read(page)).split('\n').length > 251 ? [page] : [])),
  )
  expect(long.flat()).toEqual([])
  expect((await read('README.md')).split('\n').length).toBeLessThan(200)
})
