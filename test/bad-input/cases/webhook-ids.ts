/**
 * Values of X-Service-Webhook-Id. A list repeats the header. All are signed correctly. An invalid id is answered 400
 * `invalid_webhook_id`, and its bytes go to the quarantine.
 */
export type WebhookIdCase = {
  name: string
  ids: string[]
  answer: 'accepted' | 'invalid_webhook_id' | 'bad_request' | 'headers_too_large'
}

export const webhookIds: WebhookIdCase[] = [
  { name: 'a uuid', ids: ['5b1f6a52-93a7-4b53-8f0e-3d7a2b1c9e44'], answer: 'accepted' },
  { name: 'one character', ids: ['!'], answer: 'accepted' },
  { name: 'the last visible one', ids: ['~'], answer: 'accepted' },
  { name: '255 characters', ids: ['x'.repeat(255)], answer: 'accepted' },
  { name: 'blanks and tabs round it, which HTTP takes away', ids: [' \t wh_blank \t '], answer: 'accepted' },
  { name: 'commas and quotes', ids: ['a,b;"c"=\'d\''], answer: 'accepted' },
  { name: 'SQL', ids: ["';drop/**/table/**/mediadock.deliveries;--"], answer: 'accepted' },
  { name: 'markup', ids: ['<script>alert(1)</script>'], answer: 'accepted' },
  { name: 'a path', ids: ['../../etc/passwd'], answer: 'accepted' },
  { name: 'percent-encoding, which is kept as it is', ids: ['%00%0d%0a%ff'], answer: 'accepted' },
  { name: 'a prototype', ids: ['__proto__'], answer: 'accepted' },
  { name: 'the text of nothing', ids: ['null'], answer: 'accepted' },
  { name: 'backslashes', ids: ['\\u0000\\x00\\'], answer: 'accepted' },

  { name: 'absent', ids: [], answer: 'invalid_webhook_id' },
  { name: 'empty', ids: [''], answer: 'invalid_webhook_id' },
  { name: 'blanks', ids: ['   '], answer: 'invalid_webhook_id' },
  { name: 'a tab', ids: ['\t'], answer: 'invalid_webhook_id' },
  { name: '256 characters', ids: ['x'.repeat(256)], answer: 'invalid_webhook_id' },
  { name: '8 KiB', ids: ['x'.repeat(8192)], answer: 'invalid_webhook_id' },
  { name: '20 KiB', ids: ['x'.repeat(20_480)], answer: 'headers_too_large' },
  { name: 'a blank inside', ids: ['a b'], answer: 'invalid_webhook_id' },
  { name: 'a tab inside', ids: ['a\tb'], answer: 'invalid_webhook_id' },
  { name: 'Latin-1', ids: ['caf\u00e9'], answer: 'invalid_webhook_id' },
  { name: 'UTF-8', ids: ['caf\u00c3\u00a9'], answer: 'invalid_webhook_id' },
  { name: 'a no-break space', ids: ['\u00a0'], answer: 'invalid_webhook_id' },
  { name: 'the byte 0x80', ids: ['\u0080'], answer: 'invalid_webhook_id' },
  { name: 'the byte 0xFF', ids: ['a\u00ff'], answer: 'invalid_webhook_id' },
  { name: 'twice, each another', ids: ['first', 'second'], answer: 'invalid_webhook_id' },
  { name: 'twice the same', ids: ['same', 'same'], answer: 'invalid_webhook_id' },
  { name: 'twice, the first empty', ids: ['', 'second'], answer: 'invalid_webhook_id' },
  { name: 'twice, the second empty', ids: ['first', ''], answer: 'invalid_webhook_id' },
  { name: 'a hundred times', ids: Array.from({ length: 100 }, (_, at) => `n${at}`), answer: 'invalid_webhook_id' },

  { name: 'NUL', ids: ['a\0b'], answer: 'bad_request' },
  { name: 'a control character', ids: ['a\u0001b'], answer: 'bad_request' },
  { name: 'DEL', ids: ['a\u007fb'], answer: 'bad_request' },
  { name: 'a line feed', ids: ['a\nb'], answer: 'bad_request' },
  { name: 'a carriage return', ids: ['a\rb'], answer: 'bad_request' },
  { name: 'a folded line', ids: ['a\r\n b'], answer: 'bad_request' },
]
