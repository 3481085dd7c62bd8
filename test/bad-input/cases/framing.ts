/**
 * Bytes sent to the public listener, one per character. `{signed}` stands for the header lines of a valid delivery,
 * `{body}` for its body, `{length}` for the body's length and `{hex}` for the length in hexadecimal.
 *
 * `answers` lists all answers as `<status> <code>`. With `stays`, the connection accepts another request. Otherwise nothing
 * more is read from it.
 */
export type FramingCase = { name: string; bytes: string; answers: string[]; stays?: true }

const bad = ['400 bad_request']
const accepted = ['200 accepted']
const get = (line: string, ...headers: string[]) => [line, ...headers, '', ''].join('\r\n')
const post = (...headers: string[]) => ['POST /webhooks HTTP/1.1', 'host: x', ...headers, '', ''].join('\r\n')
const signed = (...headers: string[]) =>
  `POST /webhooks HTTP/1.1\r\nhost: x\r\n{signed}${headers.map((line) => `${line}\r\n`).join('')}\r\n`
const chunked = 'transfer-encoding: chunked'
const length = 'content-length: {length}'
const smuggled = 'GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n'

export const framing: FramingCase[] = [
  // The body and its length.
  { name: 'a length', bytes: `${signed(length)}{body}`, answers: accepted, stays: true },
  {
    name: 'a length with zeros before it',
    bytes: `${signed('content-length: 000{length}')}{body}`,
    answers: accepted,
    stays: true,
  },
  {
    name: 'two requests in one write',
    bytes: `${signed(length)}{body}`.repeat(2),
    answers: ['200 accepted', '200 duplicate'],
    stays: true,
  },
  { name: 'line breaks before the request', bytes: `\r\n\r\n${signed(length)}{body}`, answers: accepted, stays: true },
  { name: 'no length and no body', bytes: signed(), answers: ['401 invalid_signature'], stays: true },
  {
    name: 'a length of nothing, and what follows is the next request',
    bytes: `${signed('content-length: 0')}${smuggled}`,
    answers: ['401 invalid_signature', '200 ok'],
    stays: true,
  },
  { name: 'two lengths that agree', bytes: `${signed(length, length)}{body}`, answers: bad },
  { name: 'two lengths that do not agree', bytes: `${signed(length, 'content-length: 0')}{body}`, answers: bad },
  { name: 'two lengths in one line', bytes: `${signed('content-length: {length}, {length}')}{body}`, answers: bad },
  { name: 'an empty length', bytes: `${signed('content-length:')}{body}`, answers: bad },
  { name: 'a negative length', bytes: `${signed('content-length: -1')}{body}`, answers: bad },
  { name: 'a length with a plus', bytes: `${signed('content-length: +{length}')}{body}`, answers: bad },
  { name: 'a length in hex', bytes: `${signed('content-length: 0x{hex}')}{body}`, answers: bad },
  { name: 'a length with a fraction', bytes: `${signed('content-length: {length}.0')}{body}`, answers: bad },
  { name: 'a length in two words', bytes: `${signed('content-length: 1 2')}{body}`, answers: bad },
  { name: 'a length beyond 2^64', bytes: `${signed('content-length: 18446744073709551617')}{body}`, answers: bad },
  {
    name: 'a length of 2^63',
    bytes: `${signed('content-length: 9223372036854775808')}{body}`,
    answers: ['413 payload_too_large'],
  },
  { name: 'a length of one byte too many', bytes: post('content-length: 65537'), answers: ['413 payload_too_large'] },
  {
    name: 'the same, asking first',
    bytes: post('content-length: 65537', 'expect: 100-continue'),
    answers: ['413 payload_too_large'],
  },
  {
    name: 'asking first, with a length that is taken',
    bytes: `${signed(length, 'expect: 100-continue')}{body}`,
    answers: ['100 -', '200 accepted'],
    stays: true,
  },
  {
    name: 'asking first in capitals',
    bytes: `${signed(length, 'expect: 100-CONTINUE')}{body}`,
    answers: ['100 -', '200 accepted'],
    stays: true,
  },
  {
    name: 'expecting something else',
    bytes: `${signed(length, 'expect: 200-ok')}{body}`,
    answers: ['417 expectation_failed'],
  },

  // The body in chunks.
  { name: 'one chunk', bytes: `${signed(chunked)}{hex}\r\n{body}\r\n0\r\n\r\n`, answers: accepted, stays: true },
  {
    name: 'a chunk size with zeros and in capitals',
    bytes: `${signed('Transfer-Encoding: CHUNKED')}000{hex}\r\n{body}\r\n000\r\n\r\n`,
    answers: accepted,
    stays: true,
  },
  {
    name: 'a chunk with an extension',
    bytes: `${signed(chunked)}{hex};a=b;c="d"\r\n{body}\r\n0\r\n\r\n`,
    answers: accepted,
    stays: true,
  },
  {
    name: 'trailers, which are not headers',
    bytes: `${signed(chunked)}{hex}\r\n{body}\r\n0\r\nx-service-webhook-id: other\r\n\r\n`,
    answers: accepted,
    stays: true,
  },
  {
    name: 'an encoding twice in two lines',
    bytes: `${signed(chunked, chunked)}{hex}\r\n{body}\r\n0\r\n\r\n`,
    answers: bad,
  },
  { name: 'chunks and a length', bytes: `${signed(chunked, length)}{hex}\r\n{body}\r\n0\r\n\r\n`, answers: bad },
  {
    name: 'a length and chunks, with a request behind',
    bytes: `${signed('content-length: 4', chunked)}0\r\n\r\n${smuggled}`,
    answers: bad,
  },
  {
    name: 'chunks that are not the last encoding',
    bytes: `${signed('transfer-encoding: chunked, identity')}0\r\n\r\n`,
    answers: bad,
  },
  { name: 'an unknown encoding', bytes: `${signed('transfer-encoding: xchunked')}0\r\n\r\n${smuggled}`, answers: bad },
  { name: 'chunks in quotes', bytes: `${signed('transfer-encoding: "chunked"')}0\r\n\r\n${smuggled}`, answers: bad },
  {
    name: 'chunks with a vertical tab before it',
    bytes: `${signed('transfer-encoding: \u000bchunked')}0\r\n\r\n${smuggled}`,
    answers: bad,
  },
  {
    name: 'an encoding with nothing in it',
    bytes: `${signed('transfer-encoding:')}0\r\n\r\n${smuggled}`,
    answers: bad,
  },
  {
    name: 'an encoding behind a blank in its name',
    bytes: `${signed('transfer-encoding : chunked', length)}{body}`,
    answers: bad,
  },
  {
    name: 'chunks in HTTP/1.0, which has none',
    bytes: `POST /webhooks HTTP/1.0\r\nhost: x\r\nconnection: keep-alive\r\n${chunked}\r\n{signed}\r\n{hex}\r\n{body}\r\n0\r\n\r\n`,
    answers: bad,
  },
  { name: 'a chunk size that is not a number', bytes: `${signed(chunked)}xyz\r\n{body}`, answers: bad },
  { name: 'a negative chunk size', bytes: `${signed(chunked)}-1\r\n{body}`, answers: bad },
  { name: 'a chunk size with 0x', bytes: `${signed(chunked)}0x{hex}\r\n{body}\r\n0\r\n\r\n`, answers: bad },
  { name: 'a chunk size beyond 2^64', bytes: `${signed(chunked)}10000000000000001\r\n{body}`, answers: bad },
  {
    name: 'a chunk size with a blank before it',
    bytes: `${signed(chunked)} {hex}\r\n{body}\r\n0\r\n\r\n`,
    answers: bad,
  },
  { name: 'an empty chunk size', bytes: `${signed(chunked)}\r\n{body}\r\n0\r\n\r\n`, answers: bad },
  { name: 'a chunk that is longer than its size', bytes: `${signed(chunked)}1\r\n{body}\r\n0\r\n\r\n`, answers: bad },
  { name: 'a chunk that ends in a line feed alone', bytes: `${signed(chunked)}{hex}\n{body}\n0\n\n`, answers: bad },
  { name: 'NUL in an extension', bytes: `${signed(chunked)}{hex};\0\r\n{body}\r\n0\r\n\r\n`, answers: bad },
  {
    name: 'an extension of 20 KB',
    bytes: `${signed(chunked)}{hex};a=${'b'.repeat(20_000)}\r\n{body}\r\n0\r\n\r\n`,
    answers: bad,
  },
  {
    name: 'chunks of more than the limit',
    bytes: `${post(chunked)}${`4000\r\n${'x'.repeat(0x4000)}\r\n`.repeat(5)}`,
    answers: ['413 payload_too_large'],
  },
  {
    name: '3,000 chunks of one byte',
    bytes: `${post(chunked)}${'1\r\nx\r\n'.repeat(3000)}`,
    answers: ['413 payload_too_large'],
  },

  // The line of the request.
  { name: 'no HTTP at all', bytes: 'NONSENSE\r\n\r\n', answers: bad },
  { name: 'bytes of TLS', bytes: '\u0016\u0003\u0001\u0002\0\u0001\0\u0001\u00fc\u0003\u0003', answers: bad },
  { name: 'the preface of HTTP/2', bytes: 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', answers: bad },
  { name: 'HTTP/0.9', bytes: 'GET /healthz\r\n\r\n', answers: bad },
  { name: 'HTTP/1.2', bytes: get('GET /healthz HTTP/1.2', 'host: x'), answers: bad },
  { name: 'HTTP/2.0', bytes: get('GET /healthz HTTP/2.0', 'host: x'), answers: bad },
  { name: 'HTTP/1.10', bytes: get('GET /healthz HTTP/1.10', 'host: x'), answers: bad },
  { name: 'http in small letters', bytes: get('GET /healthz http/1.1', 'host: x'), answers: bad },
  { name: 'a method in small letters', bytes: get('post /webhooks HTTP/1.1', 'host: x'), answers: bad },
  { name: 'an unknown method', bytes: get('BREW /webhooks HTTP/1.1', 'host: x'), answers: bad },
  {
    name: 'two blanks, which HTTP lets pass',
    bytes: get('GET  /healthz HTTP/1.1', 'host: x'),
    answers: ['200 ok'],
    stays: true,
  },
  { name: 'a tab', bytes: get('GET\t/healthz HTTP/1.1', 'host: x'), answers: bad },
  { name: 'a blank in the path', bytes: get('GET /health z HTTP/1.1', 'host: x'), answers: bad },
  { name: 'NUL in the path', bytes: get('GET /healthz\0 HTTP/1.1', 'host: x'), answers: bad },
  { name: 'DEL in the path', bytes: get('GET /healthz\u007f HTTP/1.1', 'host: x'), answers: bad },
  { name: 'a line feed in the path', bytes: get('GET /health\nz HTTP/1.1', 'host: x'), answers: bad },
  { name: 'a path without its slash', bytes: get('GET healthz HTTP/1.1', 'host: x'), answers: bad },
  { name: 'a target of another scheme', bytes: get('GET ftp://x/healthz HTTP/1.1', 'host: x'), answers: bad },
  {
    name: 'a target that is not a URL',
    bytes: get('POST http://[bad/webhooks HTTP/1.1', 'host: x', 'content-length: 0'),
    answers: bad,
  },
  { name: 'a whole URL', bytes: get('GET http://x/healthz HTTP/1.1', 'host: x'), answers: ['200 ok'], stays: true },
  { name: 'an asterisk', bytes: get('GET * HTTP/1.1', 'host: x'), answers: bad },
  {
    name: 'a path of 20 KB',
    bytes: get(`GET /${'x'.repeat(20_000)} HTTP/1.1`, 'host: x'),
    answers: ['431 headers_too_large'],
  },
  {
    name: 'a path of two slashes',
    bytes: get('POST //webhooks HTTP/1.1', 'host: x', 'content-length: 0'),
    answers: ['404 not_found'],
    stays: true,
  },
  {
    name: 'a path with dots',
    bytes: get('POST /x/../webhooks HTTP/1.1', 'host: x', 'content-length: 0'),
    answers: ['404 not_found'],
    stays: true,
  },
  {
    name: 'a path in percent-encoding',
    bytes: get('POST /web%68ooks HTTP/1.1', 'host: x', 'content-length: 0'),
    answers: ['404 not_found'],
    stays: true,
  },
  {
    name: 'percent-encoding that is not UTF-8',
    bytes: get('POST /%ff HTTP/1.1', 'host: x', 'content-length: 0'),
    answers: ['404 not_found'],
    stays: true,
  },
  {
    name: 'a query, which means nothing',
    bytes: `${signed(length).replace('/webhooks', '/webhooks?a[__proto__]=%00')}{body}`,
    answers: accepted,
    stays: true,
  },
  {
    name: 'GET in the guise of POST',
    bytes: get('GET /webhooks HTTP/1.1', 'host: x', 'x-http-method-override: POST'),
    answers: ['405 method_not_allowed'],
    stays: true,
  },
  {
    name: 'TRACE',
    bytes: get('TRACE /webhooks HTTP/1.1', 'host: x'),
    answers: ['405 method_not_allowed'],
    stays: true,
  },
  { name: 'CONNECT', bytes: get('CONNECT x:443 HTTP/1.1', 'host: x'), answers: ['405 method_not_allowed'] },
  {
    name: 'an upgrade, which is not taken up',
    bytes: `${signed(length, 'connection: upgrade', 'upgrade: websocket')}{body}`,
    answers: accepted,
    stays: true,
  },
  {
    name: 'an upgrade to HTTP/2',
    bytes: get(
      'GET /healthz HTTP/1.1',
      'host: x',
      'connection: Upgrade, HTTP2-Settings',
      'upgrade: h2c',
      'http2-settings: AAMAAABkAARAAAAAAAIAAAAA',
    ),
    answers: ['200 ok'],
    stays: true,
  },

  // The headers.
  { name: 'no Host', bytes: get('GET /healthz HTTP/1.1'), answers: bad },
  { name: 'two Hosts', bytes: get('GET /healthz HTTP/1.1', 'host: x', 'Host: x'), answers: bad },
  { name: 'no Host in HTTP/1.0', bytes: get('GET /healthz HTTP/1.0'), answers: ['200 ok'] },
  { name: 'line feeds alone', bytes: 'GET /healthz HTTP/1.1\nhost: x\n\n', answers: bad },
  { name: 'carriage returns alone', bytes: 'GET /healthz HTTP/1.1\rhost: x\r\r', answers: bad },
  { name: 'a folded line', bytes: post('x-a: b', ' c', 'content-length: 0'), answers: bad },
  { name: 'a blank before the first header', bytes: get('GET /healthz HTTP/1.1', ' host: x'), answers: bad },
  { name: 'a header without a colon', bytes: post('nonsense'), answers: bad },
  { name: 'a header without a name', bytes: post(': x'), answers: bad },
  { name: 'a blank in a name', bytes: post('x a: b'), answers: bad },
  { name: 'a name of bytes that are no ASCII', bytes: post('x-\u00e9: b'), answers: bad },
  { name: 'NUL in a name', bytes: post('x-\0: b'), answers: bad },
  { name: 'NUL in a value', bytes: post('x-a: \0'), answers: bad },
  { name: 'a value of 20 KB', bytes: post(`x-a: ${'x'.repeat(20_000)}`), answers: ['431 headers_too_large'] },
  {
    name: 'headers of 20 KB',
    bytes: post(...Array.from({ length: 200 }, (_, n) => `x-${n}: ${'x'.repeat(90)}`)),
    answers: ['431 headers_too_large'],
  },
  { name: 'a name of 20 KB', bytes: post(`${'x'.repeat(20_000)}: a`), answers: ['431 headers_too_large'] },
  {
    name: '900 headers',
    bytes: `${signed(length, ...Array.from({ length: 900 }, () => 'a: b'))}{body}`,
    answers: accepted,
    stays: true,
  },
  {
    name: '3,000 headers',
    bytes: post(...Array.from({ length: 3000 }, () => 'a:'), 'content-length: 0'),
    answers: ['431 headers_too_large'],
  },
  {
    name: 'a second id behind 1,100 headers',
    bytes: `${signed(length, ...Array.from({ length: 1100 }, () => 'a: b'), 'x-service-webhook-id: other')}{body}`,
    answers: ['431 headers_too_large'],
  },
  {
    name: 'a second Host behind 1,100 headers',
    bytes: get('GET /healthz HTTP/1.1', 'host: x', ...Array.from({ length: 1100 }, () => 'a: b'), 'host: y'),
    answers: ['431 headers_too_large'],
  },
  {
    name: 'an encoding of the body',
    bytes: `${signed(length, 'content-encoding: gzip')}{body}`,
    answers: ['415 unsupported_encoding'],
  },
  {
    name: 'another encoding of the body',
    bytes: `${signed(length, 'content-encoding: br')}{body}`,
    answers: ['415 unsupported_encoding'],
  },
  {
    name: 'deflate',
    bytes: `${signed(length, 'content-encoding: deflate')}{body}`,
    answers: ['415 unsupported_encoding'],
  },
  {
    name: 'identity and then gzip',
    bytes: `${signed(length, 'content-encoding: identity, gzip')}{body}`,
    answers: ['415 unsupported_encoding'],
  },
  {
    name: 'GZIP in capitals, in chunks',
    bytes: `${signed(chunked, 'content-encoding: GZIP')}{hex}\r\n{body}\r\n0\r\n\r\n`,
    answers: ['415 unsupported_encoding'],
  },
  {
    name: 'two encodings of the body',
    bytes: `${signed(length, 'content-encoding: identity', 'content-encoding: gzip')}{body}`,
    answers: ['415 unsupported_encoding'],
  },
  {
    name: 'identity as the encoding of the body',
    bytes: `${signed(length, 'content-encoding: Identity')}{body}`,
    answers: accepted,
    stays: true,
  },
  {
    name: 'headers that proxies trust',
    bytes: `${signed(length, "x-forwarded-for: ', %00, ::ffff:1.2.3.4%eth0", 'x-forwarded-proto: javascript', 'forwarded: for="[::1]"')}{body}`,
    answers: accepted,
    stays: true,
  },
  {
    name: 'headers of prototypes',
    bytes: `${signed(length, '__proto__: x', 'constructor: y', 'hasownproperty: z')}{body}`,
    answers: accepted,
    stays: true,
  },
  {
    name: 'the connection closed on wish',
    bytes: `${signed(length, 'connection: close')}{body}${smuggled}`,
    answers: accepted,
  },
]
