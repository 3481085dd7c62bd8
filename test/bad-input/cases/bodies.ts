/**
 * Bodies with a valid signature and id. All of them are answered 200 and kept byte for byte. `{id}` is the case's
 * request id.
 *
 * `parked` is the reason for parking the body at its arrival. Otherwise `lands` is the request's final status.
 */
export type BodyCase = { name: string; body: string | Buffer } & (
  | { parked: Parked }
  | { lands: 'COMPLETED' | 'FAILED' }
)
type Parked = 'not_utf8' | 'not_json' | 'not_storable' | 'unknown_shape' | 'no_request_id' | 'unknown_status'

const hex = (bytes: string) => Buffer.from(bytes.replaceAll(' ', ''), 'hex')
const error = (members: string) => `{"request_id":"{id}","status":"ERROR","error":{${members}}}`
const message = (text: string) => error(`"code":"X","message":${text}`)
const ok = (payload: string) => `{"request_id":"{id}","status":"OK","payload":${payload}}`
const output = (text: string, more = '"cost":1') => ok(`{"model":"m","output":${text},${more}}`)
const audio = (url: string, more?: string) => output(`{"audio":{"url":${url}}}`, more)
const pictures = (count: number) =>
  output(`{"images":[${Array.from({ length: count }, (_, n) => `{"url":"https://m.test/${n}"}`).join(',')}]}`)
const id = (text: string) => `{"request_id":${text},"status":"ERROR","error":{"code":"X","message":"m"}}`
const status = (text: string) => `{"request_id":"{id}","status":${text},"error":{"code":"X","message":"m"}}`
const nested = (depth: number, open: string, close: string) => open.repeat(depth) + close.repeat(depth)

export const bodies: BodyCase[] = [
  { name: 'a failure', body: message('"m"'), lands: 'FAILED' },
  { name: 'sound', body: audio('"https://m.test/a.mp3"'), lands: 'COMPLETED' },
  { name: 'white space round it', body: ` \t\r\n${message('"m"')}\r\n\t `, lands: 'FAILED' },
  { name: 'members that are new to us', body: error('"code":"X","message":"m","hint":[{}],"":null'), lands: 'FAILED' },
  {
    name: 'a member named __proto__',
    body: error('"__proto__":{"code":"Y"},"code":"X","message":"m"'),
    lands: 'FAILED',
  },
  {
    name: 'a member named constructor',
    body: error('"constructor":{"prototype":{}},"code":"X","message":"m"'),
    lands: 'FAILED',
  },
  { name: 'an empty code and message', body: error('"code":"","message":""'), lands: 'FAILED' },
  { name: 'a code of 100 KB', body: error(`"code":"${'c'.repeat(100_000)}","message":"m"`), lands: 'FAILED' },
  { name: 'a message of 200 KB that does not compress', body: message(`"${noise(200_000)}"`), lands: 'FAILED' },
  {
    name: 'a model of 100 KB that does not compress',
    body: ok(`{"model":"${noise(100_000)}","output":{"audio":{"url":"u"}},"cost":1}`),
    lands: 'COMPLETED',
  },
  { name: 'an empty model', body: ok('{"model":"","output":{"audio":{"url":"u"}},"cost":1}'), lands: 'COMPLETED' },
  {
    name: 'every plane of Unicode',
    body: message('"\u00e9 \u96ea \ud83c\udf0a \u{10ffff} \ufffe \uffff"'),
    lands: 'FAILED',
  },
  { name: 'a pair of surrogates as escapes', body: message('"\\ud83c\\udf0a"'), lands: 'FAILED' },
  { name: 'the text \\u0000, escaped', body: message('"\\\\u0000"'), lands: 'FAILED' },
  { name: 'the text \\ud800, escaped', body: message('"\\\\ud800"'), lands: 'FAILED' },
  { name: 'a byte-order mark inside a string', body: message('"\ufeff"'), lands: 'FAILED' },
  { name: 'writing from right to left, and its overrides', body: message('"\u202e\u05d0\u2066"'), lands: 'FAILED' },
  { name: 'SQL', body: message(`"'; drop table mediadock.results; -- $1 \\\\x00 {} %s"`), lands: 'FAILED' },
  { name: 'markup', body: message('"<script>alert(1)</script><!--"'), lands: 'FAILED' },
  { name: 'the control characters but NUL', body: message('"\\u0001\\u001f\\u007f\\u0080\\u2028"'), lands: 'FAILED' },
  { name: 'NUL in an unread member', body: error('"code":"X","message":"m","x":"\\u0000"'), lands: 'FAILED' },
  {
    name: 'half a pair in an unread member',
    body: error('"code":"X","message":"m","\\ud800":1'),
    lands: 'FAILED',
  },
  {
    name: 'the same member twice: the last one counts',
    body: error('"code":1,"code":"X","message":null,"message":"m"'),
    lands: 'FAILED',
  },
  {
    name: 'two request ids: the last one counts',
    body: `{"request_id":"x","request_id":"{id}","status":"ERROR","error":{"code":"X","message":"m"}}`,
    lands: 'FAILED',
  },
  {
    name: 'two states: the last one counts',
    body: `{"request_id":"{id}","status":"OK","status":"ERROR","error":{"code":"X","message":"m"}}`,
    lands: 'FAILED',
  },
  {
    name: 'a name written in escapes',
    body: `{"\\u0072equest_id":"{id}","status":"ERROR","error":{"code":"X","message":"m"}}`,
    lands: 'FAILED',
  },
  { name: 'an upper-case uuid', body: message('"m"').replace('{id}', '{ID}'), lands: 'FAILED' },
  {
    name: 'a member nested 200 times',
    body: error(`"code":"X","message":"m","x":${nested(200, '[', ']')}`),
    lands: 'FAILED',
  },
  {
    name: 'a member nested 20,000 times',
    body: error(`"code":"X","message":"m","x":${nested(20_000, '[', ']')}`),
    lands: 'FAILED',
  },
  {
    name: '20,000 members',
    body: error(`"code":"X","message":"m"${Array.from({ length: 20_000 }, (_, n) => `,"m${n}":0`).join('')}`),
    lands: 'FAILED',
  },
  { name: '100 pictures', body: pictures(100), lands: 'COMPLETED' },
  { name: 'a url of 8,192 characters', body: audio(`"${'u'.repeat(8192)}"`), lands: 'COMPLETED' },
  { name: 'a url that is a script', body: audio('"javascript:alert(1)"'), lands: 'COMPLETED' },
  { name: 'an invalid url', body: audio('"\\\\\\\\"'), lands: 'COMPLETED' },
  { name: 'a cost of nothing', body: audio('"u"', '"cost":0'), lands: 'COMPLETED' },
  { name: 'a cost of minus nothing', body: audio('"u"', '"cost":-0'), lands: 'COMPLETED' },
  { name: 'a cost of 1e308', body: audio('"u"', '"cost":1e308'), lands: 'COMPLETED' },
  { name: 'the least cost there is', body: audio('"u"', '"cost":5e-324'), lands: 'COMPLETED' },
  { name: 'a cost of a thousand digits', body: audio('"u"', `"cost":0.${'3'.repeat(1000)}`), lands: 'COMPLETED' },
  { name: 'a cost beyond 2^53', body: audio('"u"', '"cost":9007199254740993'), lands: 'COMPLETED' },
  {
    name: 'sound and pictures at once: the pictures',
    body: output('{"audio":{"url":"u"},"images":[{"url":"u"}]}'),
    lands: 'COMPLETED',
  },

  { name: 'bytes that are no UTF-8', body: hex('7b ff 7d'), parked: 'not_utf8' },
  { name: 'a failure in Latin-1', body: Buffer.from(message('"caf\u00e9"'), 'latin1'), parked: 'not_utf8' },
  { name: 'half a surrogate pair in bytes', body: hex('22 ed a0 80 22'), parked: 'not_utf8' },
  { name: 'a surrogate pair of two times three bytes', body: hex('22 ed a0 bc ed bc 8a 22'), parked: 'not_utf8' },
  { name: 'NUL in two bytes', body: hex('22 c0 80 22'), parked: 'not_utf8' },
  { name: 'a slash in three bytes', body: hex('22 e0 80 af 22'), parked: 'not_utf8' },
  { name: 'beyond the last plane', body: hex('22 f4 90 80 80 22'), parked: 'not_utf8' },
  { name: 'a character that is cut short', body: hex('22 e9 9b'), parked: 'not_utf8' },
  { name: 'UTF-16 with its mark', body: Buffer.from(`\ufeff${message('"m"')}`, 'utf16le'), parked: 'not_utf8' },
  { name: 'UTF-16 without it', body: Buffer.from(message('"m"'), 'utf16le'), parked: 'not_json' },
  { name: 'gzip', body: hex('1f 8b 08 00 00 00 00 00 00 03 ab ae 05 00 43 bf a6 a3 02 00 00 00'), parked: 'not_utf8' },
  { name: 'a byte-order mark', body: `\ufeff${message('"m"')}`, parked: 'not_json' },
  { name: 'two of them', body: `\ufeff\ufeff${message('"m"')}`, parked: 'not_json' },
  { name: 'nothing', body: '', parked: 'not_json' },
  { name: 'white space', body: ' \r\n\t', parked: 'not_json' },
  { name: 'a no-break space before it', body: `\u00a0${message('"m"')}`, parked: 'not_json' },
  { name: 'NUL', body: '\0', parked: 'not_json' },
  { name: 'NUL after it', body: `${message('"m"')}\0`, parked: 'not_json' },
  { name: 'NUL as it is in a string', body: message('"a\0b"'), parked: 'not_json' },
  { name: 'a line break as it is in a string', body: message('"a\nb"'), parked: 'not_json' },
  { name: 'half of it', body: '{"request_id":"{id}","sta', parked: 'not_json' },
  { name: 'two of them in a row', body: `${message('"m"')}${message('"m"')}`, parked: 'not_json' },
  { name: 'a form', body: 'request_id={id}&status=ERROR', parked: 'not_json' },
  { name: 'XML', body: '<?xml version="1.0"?><request_id>{id}</request_id>', parked: 'not_json' },
  { name: 'a comment', body: `/* m */${message('"m"')}`, parked: 'not_json' },
  { name: 'a comma too many', body: error('"code":"X","message":"m",'), parked: 'not_json' },
  { name: 'single quotes', body: "{'request_id':'{id}'}", parked: 'not_json' },
  { name: 'NaN', body: audio('"u"', '"cost":NaN'), parked: 'not_json' },
  { name: 'a leading zero', body: audio('"u"', '"cost":01'), parked: 'not_json' },
  { name: 'an invalid escape', body: message('"\\x00"'), parked: 'not_json' },
  { name: '500,000 unclosed brackets', body: '['.repeat(500_000), parked: 'not_json' },

  { name: 'null', body: 'null', parked: 'unknown_shape' },
  { name: 'a number', body: '1e999', parked: 'unknown_shape' },
  { name: 'a text', body: '"OK"', parked: 'unknown_shape' },
  { name: 'a list', body: '[]', parked: 'unknown_shape' },
  { name: 'a list with a notification in it', body: `[${message('"m"')}]`, parked: 'unknown_shape' },
  { name: '200,000 lists in one another', body: nested(200_000, '[', ']'), parked: 'unknown_shape' },
  { name: 'an object with nothing in it', body: '{}', parked: 'no_request_id' },
  {
    name: '100,000 objects in one another',
    body: `${'{"a":'.repeat(100_000)}0${'}'.repeat(100_000)}`,
    parked: 'no_request_id',
  },
  {
    name: 'a request id that hides in a prototype',
    body: '{"__proto__":{"request_id":"{id}"},"status":"ERROR"}',
    parked: 'no_request_id',
  },
  { name: 'REQUEST_ID', body: message('"m"').replace('request_id', 'REQUEST_ID'), parked: 'no_request_id' },
  { name: 'null for a request id', body: id('null'), parked: 'no_request_id' },
  { name: 'a number for a request id', body: id('42'), parked: 'no_request_id' },
  { name: 'a list for a request id', body: id('["{id}"]'), parked: 'no_request_id' },
  { name: 'no uuid', body: id('"42"'), parked: 'no_request_id' },
  { name: 'an empty request id', body: id('""'), parked: 'no_request_id' },
  { name: 'a uuid in braces', body: id('"{{id}}"'), parked: 'no_request_id' },
  { name: 'a uuid as a URN', body: id('"urn:uuid:{id}"'), parked: 'no_request_id' },
  { name: 'a uuid without its dashes', body: id('"0b6f7a5293a74b538f0e3d7a2b1c9e44"'), parked: 'no_request_id' },
  { name: 'a blank after the uuid', body: id('"{id} "'), parked: 'no_request_id' },
  { name: 'a line break after the uuid', body: id('"{id}\\n"'), parked: 'no_request_id' },
  { name: 'NUL after the uuid', body: id('"{id}\\u0000"'), parked: 'no_request_id' },
  {
    name: 'a uuid with a digit in full width',
    body: id('"\uff10b6f7a52-93a7-4b53-8f0e-3d7a2b1c9e44"'),
    parked: 'no_request_id',
  },
  { name: 'no state', body: '{"request_id":"{id}","error":{"code":"X","message":"m"}}', parked: 'unknown_status' },
  { name: 'a state of the REST API', body: status('"FAILED"'), parked: 'unknown_status' },
  { name: 'a state in lower case', body: status('"error"'), parked: 'unknown_status' },
  { name: 'a state with a blank', body: status('"ERROR "'), parked: 'unknown_status' },
  { name: 'a state with NUL', body: status('"ERROR\\u0000"'), parked: 'unknown_status' },
  { name: 'a number for a state', body: status('200'), parked: 'unknown_status' },
  { name: 'a list for a state', body: status('["ERROR"]'), parked: 'unknown_status' },
  { name: 'OK without payload', body: '{"request_id":"{id}","status":"OK"}', parked: 'unknown_shape' },
  { name: 'OK with the error of a failure', body: status('"OK"'), parked: 'unknown_shape' },
  { name: 'a payload that is a list', body: ok('[]'), parked: 'unknown_shape' },
  { name: 'ERROR without error', body: '{"request_id":"{id}","status":"ERROR"}', parked: 'unknown_shape' },
  {
    name: 'an error that is a text',
    body: '{"request_id":"{id}","status":"ERROR","error":"no"}',
    parked: 'unknown_shape',
  },
  { name: 'a number for a code', body: error('"code":1,"message":"m"'), parked: 'unknown_shape' },
  { name: 'no message', body: error('"code":"X"'), parked: 'unknown_shape' },
  { name: 'no output', body: ok('{"model":"m","cost":1}'), parked: 'unknown_shape' },
  { name: 'an unknown kind of output', body: output('{"model3d":{"url":"u"}}'), parked: 'unknown_shape' },
  { name: 'no picture', body: output('{"images":[]}'), parked: 'unknown_shape' },
  { name: '101 pictures', body: pictures(101), parked: 'unknown_shape' },
  { name: '30,000 pictures', body: pictures(30_000), parked: 'unknown_shape' },
  { name: 'a picture that is a text', body: output('{"images":["u"]}'), parked: 'unknown_shape' },
  { name: 'one picture of two without url', body: output('{"images":[{"url":"u"},{}]}'), parked: 'unknown_shape' },
  { name: 'pictures as an object', body: output('{"images":{"0":{"url":"u"},"length":1}}'), parked: 'unknown_shape' },
  { name: 'an empty url', body: audio('""'), parked: 'unknown_shape' },
  { name: 'a url of 8,193 characters', body: audio(`"${'u'.repeat(8193)}"`), parked: 'unknown_shape' },
  { name: 'no cost', body: audio('"u"', '"x":1'), parked: 'unknown_shape' },
  { name: 'a cost in words', body: audio('"u"', '"cost":"1"'), parked: 'unknown_shape' },
  { name: 'a cost below nothing', body: audio('"u"', '"cost":-0.01'), parked: 'unknown_shape' },
  { name: 'a cost beyond all numbers', body: audio('"u"', '"cost":1e999'), parked: 'unknown_shape' },
  { name: 'a cost of 10,000 digits', body: audio('"u"', `"cost":${'9'.repeat(10_000)}`), parked: 'unknown_shape' },
  { name: 'no model', body: ok('{"output":{"audio":{"url":"u"}},"cost":1}'), parked: 'unknown_shape' },
  { name: 'NUL in a message', body: message('"a\\u0000b"'), parked: 'not_storable' },
  { name: 'NUL in a code', body: error('"code":"\\u0000","message":"m"'), parked: 'not_storable' },
  {
    name: 'NUL in a model',
    body: ok('{"model":"\\u0000","output":{"audio":{"url":"u"}},"cost":1}'),
    parked: 'not_storable',
  },
  { name: 'NUL in a url', body: audio('"u\\u0000"'), parked: 'not_storable' },
  { name: 'NUL behind a backslash', body: message('"\\\\\\u0000"'), parked: 'not_storable' },
  { name: 'the first half of a pair', body: message('"\\ud800"'), parked: 'not_storable' },
  { name: 'the second half, in upper case', body: message('"\\uDFFF"'), parked: 'not_storable' },
  { name: 'both halves the wrong way round', body: message('"\\udf0a\\ud83c"'), parked: 'not_storable' },
  { name: 'half a pair in a url', body: audio('"u\\udbff"'), parked: 'not_storable' },
]

/** Text that no compression makes smaller, the same at each run. */
function noise(characters: number): string {
  let state = 1
  let text = ''
  while (text.length < characters) {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    text += (state >>> 8).toString(36)
  }
  return text.slice(0, characters)
}
