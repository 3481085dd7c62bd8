/**
 * Query strings for the JSON API and the console.
 *
 * `wrong` is the parameter that a 400 `invalid_filter` names, on every list and page, also on those without this filter.
 * If it is undefined, the answer is 200, or that 400 where the filter does not exist. Values are percent-encoded.
 */
export type FilterCase = { query: string; wrong: string | undefined }

const wrong = (parameter: string, ...values: string[]): FilterCase[] =>
  values.map((value) => ({ query: `${parameter}=${value}`, wrong: parameter }))
const odd = (...queries: string[]): FilterCase[] => queries.map((query) => ({ query, wrong: undefined }))
const cursor = (text: string) => encodeURIComponent(Buffer.from(text).toString('base64url'))
const uuid = '2f0d6c1e-0000-4000-8000-000000000001'

const times = [
  ...wrong(
    'since',
    'yesterday',
    '2026-01-31',
    '2026-01-31T03:00:00',
    '2026-02-30T00:00:00Z',
    '2026-01-31T24:00:00Z',
    '2026-01-31T23:59:60Z',
    '2026-01-31T03:00:00%2B23:59',
    '2026-01-31T03:00:00-23:59',
    '2026-01-31T03:00:00%2B16:00',
    '2026-01-31T03:00:00%2B99:99',
    '0000-01-01T00:00:00Z',
    '0001-01-01T00:00:00Z',
    '1969-12-31T23:59:59Z',
    '1970-01-01T00:00:00%2B14:00',
    '%2B275760-09-13T00:00:00Z',
    '9999-12-31T23:00:00-12:00',
    '294277-01-01T00:00:00Z',
    'infinity',
    '-infinity',
    'now()',
    'epoch',
    '2026-01-31T03:00:00Z%00',
    `2026-01-31T03:00:00.${'1'.repeat(5000)}Z`,
  ),
  ...wrong('until', '2026-01-31T03:00:00%2B24:00', '', '2026-01-31T03:00:00Z&until=2026-01-31T03:00:00Z'),
  ...odd(
    'since=9999-12-31T23:59:59Z',
    'until=9999-12-31T23:59:59.999999999Z',
    'since=2026-01-31T03:00:00%2B14:00',
    'until=2026-01-31T03:00:00-12:00',
    'since=2026-12-31T00:00:00Z&until=2026-01-01T00:00:00Z',
    'since=2026-01-31T03:00:00.123456789Z',
    'since=9999-12-31T11:59:59-12:00',
  ),
]

const integers = ['min_ack_ms', 'min_skew_seconds', 'min_arrivals'].flatMap((name) => [
  ...wrong(
    name,
    `0`,
    `-1`,
    `1.5`,
    `1e3`,
    `0x10`,
    `NaN`,
    `Infinity`,
    `9007199254740991`,
    `99999999999999999999`,
    `%20`,
    `١`,
  ),
  ...odd(`${name}=1`, `${name}=999999999`),
])

const texts = ['webhook_id', 'key_name', 'reason', 'model', 'actor', 'target', 'action'].flatMap((name) => [
  ...wrong(name, `abcd%00`, 'x'.repeat(256), 'x'.repeat(8000)),
  ...wrong(`${name}[]`, 'abcd'),
  ...wrong(`${name}[a]`, 'abcd'),
  // Invalid UTF-8, including a lone surrogate, is read as U+FFFD.
  ...odd(
    `${name}=abcd%ED%A0%80`,
    `${name}=%FF%FE%FD%FC`,
    `${name}=%25_%5C'%22;--`,
    `${name}=%F0%9F%92%A9%F0%9F%92%A9`,
    `${name}=${'%F0%9F%92%A9'.repeat(127)}`,
    `${name}=null`,
    `${name}=%E2%80%AEabcd`,
  ),
])

const ids = [
  ...wrong(
    'request_id',
    '1',
    '',
    `${uuid}%00`,
    `${uuid}&request_id=${uuid}`,
    `{${uuid}}`,
    `urn:uuid:${uuid}`,
    `${uuid}%0A`,
  ),
  ...wrong('request_id[]', uuid),
  ...wrong('ids', '1,2', ',', '', `${uuid},`, Array.from({ length: 201 }, () => uuid).join(',')),
  ...odd(
    `request_id=${uuid.toUpperCase()}`,
    `ids=${uuid.toUpperCase()},${uuid}`,
    `ids=${Array.from({ length: 200 }, () => uuid).join(',')}`,
  ),
]

const cursors = [
  ...wrong(
    'cursor',
    '',
    'x',
    '%00',
    '!!!!',
    cursor('nonsense'),
    cursor('.'),
    cursor(`99999999999999999.${uuid}`),
    cursor(`-1.${uuid}`),
    cursor(`1e9.${uuid}`),
    cursor(`1.${uuid}.1`),
    cursor(`1.${'-'.repeat(36)}`),
    cursor(`1.${'9'.repeat(19)}`),
    cursor("1.1'; select 1"),
    cursor(`1\0.${uuid}`),
    'A'.repeat(129),
    'A'.repeat(8000),
    '1&cursor=2',
  ),
  ...wrong('cursor[]', '1'),
  ...odd(
    `cursor=${cursor(`9999999999999999.${'9'.repeat(18)}`)}`,
    `cursor=${cursor(`9999999999999999.${uuid}`)}`,
    `cursor=${cursor('0.0')}`,
    `cursor=${cursor(`0.${uuid}`)}`,
    `cursor=${cursor('1.1')}`,
    `cursor=${cursor(`1700000000000000.${'0'.repeat(8)}-0000-0000-0000-${'0'.repeat(12)}`)}`,
    `cursor=${cursor('1700000000000000.999999999999999999')}`,
  ),
]

const rest = [
  ...wrong(
    'limit',
    '0',
    '201',
    '-1',
    '1.5',
    'abc',
    '',
    '1&limit=2',
    '99999999999999999999',
    '1e2',
    '%00',
    '%201',
    '0x1',
    '١',
  ),
  ...wrong('limit[]', '1'),
  ...wrong('state', 'gone', 'pending&state=parked', 'PARKED', 'parked%00', ''),
  ...wrong('outcome', 'PARKED', 'constructor', ''),
  ...wrong('status', 'completed', '__proto__', ''),
  ...wrong('overdue', 'yes', '1', 'TRUE', ''),
  ...wrong('via', 'smoke'),
  ...wrong('trigger', 'x'),
  ...wrong('view[a]', 'b'),
  ...wrong('constructor', '1'),
  ...wrong('__proto__', '1'),
  ...wrong('__proto__[a]', '1'),
  ...wrong('toString', '1'),
  ...wrong('colour', 'red'),
  ...wrong('a.b', 'c'),
  ...odd('', '&&&', 'limit=200', 'limit=1', 'limit=001', 'limit=1&&&'),
  // Unknown names, and one that is not text.
  { query: '=1', wrong: '""' },
  { query: '%00=1', wrong: '\0' },
  { query: '?', wrong: '?' },
]

export const filters: readonly FilterCase[] = [...times, ...integers, ...texts, ...ids, ...cursors, ...rest]

/** `filter` of a replay, each refused with 400. */
export const replayFilters: { name: string; filter: unknown }[] = [
  { name: 'an array', filter: [] },
  { name: 'a text', filter: 'state=parked' },
  { name: 'numbers', filter: { min_ack_ms: 9_007_199_254_740_991 } },
  { name: 'a negative number', filter: { min_arrivals: -1 } },
  { name: 'a fraction', filter: { min_skew_seconds: 0.5 } },
  { name: 'a number beyond int4', filter: { min_skew_seconds: 2_147_483_648 } },
  { name: 'an object', filter: { model: { a: 1 } } },
  { name: 'a list', filter: { key_name: ['live'] } },
  { name: 'null', filter: { model: null } },
  { name: 'NUL', filter: { reason: 'a\0' } },
  { name: 'a lone surrogate', filter: { model: 'abcd\ud800' } },
  { name: 'a lone surrogate in a key', filter: { key_name: '\udfff' } },
  { name: 'an odd offset', filter: { since: '2026-01-01T00:00:00+23:59' } },
  { name: 'a time before 1970', filter: { until: '1969-12-31T23:59:59Z' } },
  { name: 'a number for a time', filter: { since: 0 } },
  { name: 'a cursor', filter: { cursor: 'MS4x' } },
  { name: 'ids that are a list', filter: { ids: [uuid] } },
  { name: 'an unknown state', filter: { state: 'gone' } },
  { name: 'an unknown name', filter: { colour: 'red' } },
]

/** The same as it is written: what `JSON.stringify` cannot say. */
export const replayFiltersAsWritten: { name: string; json: string }[] = [
  { name: 'nesting', json: `{"model":${'['.repeat(100_000)}${']'.repeat(100_000)}}` },
  { name: 'a prototype', json: '{"__proto__":{"model":"abcd"}}' },
  { name: 'a number beyond all', json: '{"min_ack_ms":1e999}' },
  { name: 'no JSON', json: '{' },
]

/** `wait` for an unknown result. */
export const waits: { wait: string; status: 400 | 404 }[] = [
  ...['0', '1', '59', '60', '00', '05'].map((wait) => ({ wait, status: 404 as const })),
  ...['61', '99', '100', '-1', '1e1', '1&wait=2', '%00', '', 'abc', '5.0', '%205', '0x1', '١', '9007199254740991'].map(
    (wait) => ({
      wait,
      status: 400 as const,
    }),
  ),
]

/** The ids after which a tail of arrivals continues. */
export const lastEventIds: { id: string; status: 200 | 400 }[] = [
  { id: 'x', status: 400 },
  { id: '9'.repeat(40), status: 400 },
  { id: 'a'.repeat(200), status: 400 },
  { id: Buffer.from('9999999999999999.999999999999999999').toString('base64url'), status: 200 },
  { id: Buffer.from('9999999999999999.9999999999999999999').toString('base64url'), status: 400 },
  { id: `${Buffer.from('1.1').toString('base64url')}=`, status: 200 },
  { id: Buffer.from(`1.${uuid}`).toString('base64url'), status: 400 },
  { id: Buffer.from('-1.1').toString('base64url'), status: 400 },
]
