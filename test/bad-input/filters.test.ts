import fc from 'fast-check'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { long } from '../chaos/length.ts'
import { deliverAndSettle } from '../receiver/api/calls.ts'
import { preferredServer, type TestDatabase, type TestServer, usualServers } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { type TestReceiver } from '../support/receiver.ts'
import { deliver, failed, okAudio } from '../support/webhooks.ts'
import { withReceiver } from '../support/with-receiver.ts'
import {
  filters,
  lastEventIds,
  replayFilters,
  replayFiltersAsWritten,
  waits,
  type FilterCase,
} from './cases/filters.ts'
import { heldBytes } from './raw.ts'

if (long) vi.setConfig({ testTimeout: 1_800_000 })

const lists = [
  '/api/deliveries',
  '/api/arrivals',
  '/api/requests',
  '/api/quarantine',
  '/api/audit',
  '/api/reconciler/runs',
  '/api/minutes',
]
const pages = [
  '/',
  '/now/charts',
  '/deliveries',
  '/deliveries?view=arrivals',
  '/deliveries/replay',
  '/requests',
  '/parked',
  '/parked?view=quarantine',
  '/parked/verify',
  '/parked/verified',
  '/reconciler',
  '/audit',
  '/keys',
]

/** Any at all, halves of pairs included. */
const character = fc.nat({ max: 0x10ffff }).map((code) => String.fromCodePoint(code))
const refused = filters.filter(({ wrong }) => wrong !== undefined)
const odd = filters.filter(({ wrong }) => wrong === undefined)

let database: TestDatabase
let receiver: TestReceiver

async function start(server: TestServer): Promise<() => Promise<void>> {
  const its = await withReceiver({ server })
  ;({ database, receiver } = its)
  await deliverAndSettle({ receiver, database }, failed(), { webhookId: 'wh_1' })
  await deliverAndSettle({ receiver, database }, okAudio(), { webhookId: 'wh_2' })
  return its.stop
}

async function ask(path: string, query: string, accept: string): Promise<{ status: number; text: string }> {
  const url = new URL(`${path}${path.includes('?') ? '&' : '?'}${query}`, receiver.internalUrl)
  const answer = await fetch(url, { headers: { accept }, redirect: 'manual' })
  return { status: answer.status, text: await answer.text() }
}

/** The parameter that an answer of 400 names. */
function namedIn(text: string): string | undefined {
  const [, message] =
    /^\{"error":\{"type":"invalid_request_error","code":"invalid_filter","message":("(?:[^"\\]|\\.)+")\}\}$/.exec(
      text,
    ) ?? []
  return message === undefined ? undefined : /^([\s\S]+?): ./.exec(JSON.parse(message))?.[1]
}

const namesOf = (query: string) => [...new URLSearchParams(`?${query}`).keys()]

/** The mistakes of a list in handling a case. */
async function amissInList(path: string, { query, wrong }: FilterCase): Promise<unknown> {
  const { status, text } = await ask(path, query, 'application/json')
  const named = namedIn(text)
  if (status === 200 && wrong === undefined) return undefined
  const isNamed = wrong === undefined ? named !== undefined && namesOf(query).includes(named) : named === wrong
  return status === 400 && isNamed ? undefined : [query.slice(0, 80), status, text.slice(0, 200)]
}

async function amissOnPage(path: string, { query }: FilterCase): Promise<unknown> {
  const { status, text } = await ask(path, query, 'text/html')
  if (status === 200 || (status === 400 && /role="alert">|"code":"invalid_filter"/.test(text))) return undefined
  return [query.slice(0, 80), status, text.slice(0, 200)]
}

async function amissOf(
  cases: readonly FilterCase[],
  judge: (given: FilterCase) => Promise<unknown>,
): Promise<unknown[]> {
  const amiss: unknown[] = []
  for (const given of cases) amiss.push(await judge(given))
  return amiss.filter((found) => found !== undefined)
}

/** One parser reads them for all: in the short form each list and each page is given its share of the cases. */
const shareOf = (cases: readonly FilterCase[], shares: number, at: number) =>
  cases.filter((_, place) => long || place % shares === at % shares)

describe.each(usualServers)(`${odd.length} filters that reach the database, on the %s server`, (server) => {
  beforeAll(() => start(server))

  it.each(lists.map((list, at) => ({ list, at })))(
    'GET $list answers them, or reports an unknown filter',
    async ({ list, at }) => {
      expect(await amissOf(shareOf(odd, 3, at), (given) => amissInList(list, given))).toEqual([])
    },
  )
})

describe(`${filters.length} filters, ${refused.length} of them refused`, () => {
  beforeAll(() => start(preferredServer))

  it.each(lists.map((list, at) => ({ list, at })))('GET $list names the parameter', async ({ list, at }) => {
    expect(await amissOf(shareOf(refused, lists.length, at), (given) => amissInList(list, given))).toEqual([])
  })

  it.each(pages.map((page, at) => ({ page, at })))(
    'the page $page answers them with an explanation',
    async ({ page, at }) => {
      expect(await amissOf(shareOf(filters, pages.length, at), (given) => amissOnPage(page, given))).toEqual([])
    },
  )

  it.each(lastEventIds)('a tail that continues after $id: $status', async ({ id, status }) => {
    const stopped = new AbortController()
    const answer = await fetch(new URL('/api/arrivals', receiver.internalUrl), {
      headers: { accept: 'text/event-stream', 'last-event-id': id },
      signal: stopped.signal,
    })
    expect(answer.status).toBe(status)
    stopped.abort()
  })

  const replay = (filter: string) =>
    fetch(new URL('/api/deliveries/replay', receiver.internalUrl), {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: `{"dry_run":true,"filter":${filter}}`,
    })

  it.each([
    ...replayFilters.map(({ name, filter }) => ({ name, json: JSON.stringify(filter) })),
    ...replayFiltersAsWritten,
  ])('a filter of a replay that is $name is refused', async ({ json }) => {
    const answer = await replay(json)
    expect([answer.status, await answer.text()]).toEqual([
      400,
      expect.stringMatching(/^\{"error":\{"type":"invalid_request_error",/),
    ])
  })

  it.each(waits)('a wait of "$wait": $status', async ({ wait, status }) => {
    const answer = await fetch(
      new URL(`/api/results/2f0d6c1e-0000-4000-8000-000000000001?wait=${wait}`, receiver.internalUrl),
    )
    const text = await answer.text()
    expect([answer.status, namedIn(text)]).toEqual([status, status === 400 ? 'wait' : undefined])
  })

  it('any combination is answered 200, or 400 with one of its parameters', async () => {
    const names = [...new Set(filters.flatMap(({ query }) => namesOf(query)))]
    const part = fc.oneof(
      { weight: 2, arbitrary: fc.constantFrom(...filters.map(({ query }) => query)) },
      {
        weight: 3,
        arbitrary: fc
          .tuple(
            fc.constantFrom(...names),
            fc.oneof(
              fc.string({ unit: character, maxLength: 12 }),
              fc.double().map(String),
              fc.date().map(String),
              fc.maxSafeInteger().map(String),
            ),
          )
          .map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value.toWellFormed())}`),
      },
    )
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...lists),
        fc.constantFrom(...pages),
        fc.array(part, { minLength: 1, maxLength: 3 }),
        async (list, page, parts) => {
          const query = parts.join('&')
          const { status, text } = await ask(list, query, 'application/json')
          if (status !== 200) {
            expect([status, text]).toEqual([400, expect.any(String)])
            expect(['""', ...namesOf(query).map((name) => name.slice(0, 60))]).toContain(namedIn(text))
          }
          expect([200, 400]).toContain((await ask(page, query, 'text/html')).status)
        },
      ),
      { numRuns: long ? 20_000 : 25 },
    )
  })

  it('sent repeatedly: a good delivery is still accepted, and memory stays bounded', async () => {
    const round = () => Promise.all(filters.map(({ query }) => ask('/api/deliveries', query, 'application/json')))
    await round()
    const before = heldBytes()
    for (let n = 0; n < (long ? 20 : 1); n += 1) await round()
    await eventually(() => heldBytes() - before < 5_000_000)
    expect(await deliver(receiver.webhookUrl, failed().body)).toMatchObject({
      status: 200,
      json: { status: 'accepted' },
    })
  })
})
