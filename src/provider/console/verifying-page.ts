import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/console-page.ts'
import { toleranceSeconds } from '../../wire/signature.ts'
import type { Snippet } from './snippets.ts'

/**
 * The verification of a webhook (spec, Events, Signature) in each language, over the raw bytes. It returns true for a
 * body that was signed with the key's secret within five minutes, otherwise false.
 */
export const verifyingSnippets: readonly Snippet[] = [
  {
    language: 'TypeScript',
    code: `import { createHmac, timingSafeEqual } from 'node:crypto'

export function isAuthentic(rawBody: Uint8Array, signature: string, secret: string, now = Date.now() / 1000): boolean {
  const [, t = '', v1 = ''] = /^t=([0-9]{1,12}),v1=([0-9a-f]{64})$/.exec(signature) ?? []
  if (t === '' || Math.abs(now - Number(t)) > ${toleranceSeconds}) return false
  const expected = createHmac('sha256', secret).update(\`\${t}.\`).update(rawBody).digest()
  return timingSafeEqual(expected, Buffer.from(v1, 'hex'))
}`,
  },
  {
    language: 'Python',
    code: `import hashlib, hmac, re, time

def is_authentic(raw_body: bytes, signature: str, secret: str, now: float | None = None) -> bool:
    match = re.fullmatch(r"t=([0-9]{1,12}),v1=([0-9a-f]{64})", signature)
    if match is None:
        return False
    t, v1 = match.groups()
    if abs((time.time() if now is None else now) - int(t)) > ${toleranceSeconds}:
        return False
    expected = hmac.new(secret.encode(), f"{t}.".encode() + raw_body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(expected, v1)`,
  },
  {
    language: 'Go',
    code: `package webhooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"time"
)

var header = regexp.MustCompile(\`^t=([0-9]{1,12}),v1=([0-9a-f]{64})$\`)

func IsAuthentic(rawBody []byte, signature, secret string, now time.Time) bool {
	parts := header.FindStringSubmatch(signature)
	if parts == nil {
		return false
	}
	t, err := strconv.ParseInt(parts[1], 10, 64)
	if age := now.Unix() - t; err != nil || age > ${toleranceSeconds} || age < -${toleranceSeconds} {
		return false
	}
	v1, err := hex.DecodeString(parts[2])
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(parts[1] + "."))
	mac.Write(rawBody)
	return hmac.Equal(mac.Sum(nil), v1)
}`,
  },
]

export function verifyingPage(): Markup {
  return html`<h1>Verifying a webhook</h1>
    <section class="card">
      <ul>
        <li>Read the body as bytes and verify it before you parse it. A body that is parsed and serialized again may have other bytes.</li>
        <li>
          <code>X-Service-Signature</code> is <code>t=…,v1=…</code>. <code>t</code> is the time of this attempt in Unix seconds.
          <code>v1</code> is the HMAC-SHA256 of <code>t</code>, a dot and the body, in hex, with the signing secret of the key that submitted the request.
        </li>
        <li>Compare in constant time. Refuse a time that differs from your clock by more than ${toleranceSeconds / 60} minutes.</li>
        <li>
          Answer 2xx within 10 seconds. A webhook that was sent again has the same <code>X-Service-Webhook-Id</code>. Process each id once.
        </li>
      </ul>
    </section>
    ${verifyingSnippets.map(
      ({ language, code }) => html`<section class="card snippet">
        <h2>${language}</h2>
        <div><pre tabindex="0" aria-label="${language}" data-copy="${code}">${code}</pre></div>
      </section>`,
    )}`
}
