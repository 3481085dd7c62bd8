/** What anybody can write behind a `?`: each must be answered 200 or 400, and where it is `wrong`, 400. */
export type Hostile = { query: string; wrong: boolean }

const wrong = (...queries: string[]): Hostile[] => queries.map((query) => ({ query, wrong: true }))
const odd = (...queries: string[]): Hostile[] => queries.map((query) => ({ query, wrong: false }))
const cursor = (text: string) => `cursor=${encodeURIComponent(Buffer.from(text).toString('base64url'))}`
const uuid = '2f0d6c1e-0000-4000-8000-000000000001'

const times = [
  ...wrong(
    'since=yesterday',
    'since=2026-01-31',
    'since=2026-01-31T03:00:00',
    'since=2026-02-30T00:00:00Z',
    'since=2026-01-31T24:00:00Z',
    'since=2026-01-31T23:59:60Z',
    'since=2026-01-31T03:00:00%2B23:59',
    'since=2026-01-31T03:00:00-23:59',
    'since=2026-01-31T03:00:00%2B16:00',
    'since=2026-01-31T03:00:00%2B99:99',
    'until=2026-01-31T03:00:00%2B24:00',
    'since=0000-01-01T00:00:00Z',
    'since=0001-01-01T00:00:00Z',
    'since=1969-12-31T23:59:59Z',
    'since=1970-01-01T00:00:00%2B14:00',
    'since=%2B275760-09-13T00:00:00Z',
    'since=9999-12-31T23:00:00-12:00&until=9999-12-31T23:59:59-12:00',
    'since=294277-01-01T00:00:00Z',
    'since=infinity',
    'since=-infinity',
    'since=now()',
    'since=epoch',
    'since=2026-01-31T03:00:00Z%00',
    `since=2026-01-31T03:00:00.${'1'.repeat(5000)}Z`,
  ),
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
    `${name}=0`,
    `${name}=-1`,
    `${name}=1.5`,
    `${name}=1e3`,
    `${name}=0x10`,
    `${name}=NaN`,
    `${name}=Infinity`,
    `${name}=9007199254740991`,
    `${name}=99999999999999999999`,
    `${name}=%20`,
    `${name}=١`,
  ),
  ...odd(`${name}=1`, `${name}=999999999`),
])

const texts = ['q', 'webhook_id', 'key_name', 'reason', 'model', 'actor', 'target', 'action'].flatMap((name) => [
  ...wrong(`${name}=abcd%00`, `${name}=${'x'.repeat(256)}`, `${name}=${'x'.repeat(8000)}`, `${name}[]=abcd`, `${name}[a]=abcd`),
  // What is no UTF-8, a lone surrogate included, is read as U+FFFD.
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

const ids = wrong(
  'request_id=1',
  'request_id=',
  `request_id=${uuid}%00`,
  `request_id=${uuid}&request_id=${uuid}`,
  `request_id[]=${uuid}`,
  `request_id={${uuid}}`,
  'ids=1,2',
  'ids=,',
  `ids=${Array.from({ length: 201 }, () => uuid).join(',')}`,
)

const cursors = [
  ...wrong(
    'cursor=',
    'cursor=x',
    'cursor=%00',
    'cursor=!!!!',
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
    `cursor=${'A'.repeat(129)}`,
    `cursor=${'A'.repeat(8000)}`,
    'cursor[]=1',
    'cursor=1&cursor=2',
  ),
  ...odd(
    cursor(`9999999999999999.${'9'.repeat(18)}`),
    cursor(`9999999999999999.${uuid}`),
    cursor('0.0'),
    cursor(`0.${uuid}`),
    cursor('1.1'),
    cursor(`1700000000000000.${'0'.repeat(8)}-0000-0000-0000-${'0'.repeat(12)}`),
    cursor('1700000000000000.999999999999999999'),
  ),
]

const rest = [
  ...wrong(
    'limit=0',
    'limit=201',
    'limit=-1',
    'limit=1.5',
    'limit=abc',
    'limit=1&limit=2',
    'limit[]=1',
    'limit=99999999999999999999',
    'limit=1e2',
    'limit=%00',
  ),
  ...wrong(
    'state=gone',
    'state=pending&state=parked',
    'outcome=PARKED',
    'status=completed',
    'overdue=yes',
    'via=smoke',
    'trigger=x',
    'view[a]=b',
    'constructor=1',
    '__proto__=1',
    '__proto__[a]=1',
    'toString=1',
    'colour=red',
    '=1',
    '%00=1',
    'a.b=c',
  ),
  ...odd('', '&&&', 'limit=200', '?', `limit=1&limit=1`.slice(0, 7)),
]

export const hostileFilters: readonly Hostile[] = [...times, ...integers, ...texts, ...ids, ...cursors, ...rest]
