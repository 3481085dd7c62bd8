import fs from 'node:fs/promises'
import path from 'node:path'
import { Registry } from 'prom-client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { createLogger } from '../../src/platform/logger.ts'
import { createPool } from '../../src/platform/postgres/postgres.ts'
import { timeOf } from '../../src/platform/postgres/time.ts'
import { createArchiveMetrics } from '../../src/receiver/archive/role.ts'
import { createReceiverMetrics } from '../../src/receiver/metrics.ts'
import { createSubscriptionMetrics } from '../../src/receiver/subscriptions/role.ts'

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

const shared = ['HTTP framing']
const receiver = [...shared, 'The JSON API', 'The consoles']
const provider = [...shared, "The provider's API", 'The consoles']

describe('docs/errors.md', () => {
  it.each([
    { folder: 'receiver/intake', sections: [...shared, 'Answers of POST /webhooks'] },
    { folder: 'receiver', sections: receiver },
    { folder: 'provider', sections: provider },
    { folder: 'platform', sections: [...receiver, ...provider] },
  ])('has a row for each error code of src/$folder', async ({ folder, sections }) => {
    const documented = new Set((await Promise.all(sections.map(codesOfSection))).flat())
    const thrown = await codesIn(folder, folder === 'receiver' ? ['receiver/intake'] : [])
    expect(thrown.length).toBeGreaterThan(3)
    expect(thrown.filter((code) => !documented.has(code))).toEqual([])
  })

  it('has no row for an unused code', async () => {
    const sections = ['Answers of POST /webhooks', ...receiver, ...provider]
    const documented = (await Promise.all(sections.map(codesOfSection))).flat()
    const thrown = new Set(await codesIn('.', []))
    expect(documented.filter((code) => !thrown.has(code))).toEqual([])
  })
})

/** Codes with their status, like `404 not_found`, in the first column of a section's tables. */
async function codesOfSection(heading: string): Promise<string[]> {
  const text = await fs.readFile(path.join(root, 'docs/errors.md'), 'utf8')
  const section = text.split(/^## /m).find((part) => part.startsWith(`${heading}\n`)) ?? ''
  const cells = [...section.matchAll(/^\| (\d{3} .*?) \|/gm)].map(([, cell = '']) => cell)
  expect(cells.length, heading).toBeGreaterThan(2)
  return cells.flatMap((cell) =>
    [...cell.matchAll(/(\d{3}) ((?:`\w+`(?:, )?)+)/g)].flatMap(([, status, codes = '']) =>
      [...codes.matchAll(/\w+/g)].map(([code]) => `${status} ${code}`),
    ),
  )
}

/** Codes of errors that are thrown with a literal status, and of the tables from which OpenAPI is written. */
async function codesIn(folder: string, without: string[]): Promise<string[]> {
  const src = path.join(root, 'src')
  const files = (await fs.readdir(path.join(src, folder), { recursive: true }))
    .map((file) => path.join(folder, file))
    .filter((file) => file.endsWith('.ts') && !without.some((other) => file.startsWith(other)))
  const texts = await Promise.all(files.map((file) => fs.readFile(path.join(src, file), 'utf8')))
  const codes = texts.flatMap((text) => [
    ...[...text.matchAll(/(?:HttpError|Refusal)\(\s*(\d{3}),\s*'(\w+)'/g)].map(
      ([, status, code]) => `${status} ${code}`,
    ),
    ...[...text.matchAll(/status: (\d{3}),\s*code: '(\w+)'/g)].map(([, status, code]) => `${status} ${code}`),
    ...[...text.matchAll(/(\w+): \{\s*status: (\d{3}),\s*when:/g)].map(([, code, status]) => `${status} ${code}`),
  ])
  return [...new Set(codes)].toSorted()
}

it('docs/observe.md lists every metric with its labels', async () => {
  const registry = new Registry()
  const pool = createPool({ url: 'postgres://127.0.0.1:1/none', max: 1 })
  onTestFinished(() => pool.close())
  const deps = { registry, db: pool.db, logger: createLogger('silent') }
  const time = timeOf(() => new Date())
  createReceiverMetrics({ ...deps, time, fetchRatePerMinute: 1, stuckAfterSeconds: 1 }).watchRoles(() => [])
  createArchiveMetrics(deps)
  createSubscriptionMetrics(deps)
  const registered = registry.getMetricsAsArray().map((metric) => {
    const labels: unknown = Reflect.get(metric, 'labelNames')
    return `${metric.name} ${Array.isArray(labels) ? labels.join(' ') : ''}`.trim()
  })
  const text = await fs.readFile(path.join(root, 'docs/observe.md'), 'utf8')
  const rows = [...text.matchAll(/^\| (`mediadock_.*?) \|(.*?)\|/gm)].flatMap(([, names = '', labels = '']) =>
    [...names.matchAll(/`(\w+)`/g)].map(([, name]) =>
      [name, ...[...labels.matchAll(/`(\w+)`/g)].map(([, label]) => label)].join(' '),
    ),
  )
  expect(registered.length).toBeGreaterThan(20)
  expect(rows.toSorted()).toEqual(registered.toSorted())
})
