/** A submit in three languages, to be copied. It never contains the key. */
type Call = { baseUrl: string; slug: string; input: Record<string, unknown>; webhookUrl: string | undefined }

export type Snippet = { language: string; code: string }

export function submitSnippets({ baseUrl, slug, input, webhookUrl }: Call): Snippet[] {
  const url = `${baseUrl}/v1/models/${encodeURIComponent(slug)}`
  const body = { input, ...(webhookUrl !== undefined && { webhook_url: webhookUrl }) }
  return [
    { language: 'curl', code: curl(url, body) },
    { language: 'JavaScript', code: javaScript(url, body) },
    { language: 'Python', code: python(url, body) },
  ]
}

function curl(url: string, body: object): string {
  return `curl -X POST ${shellWord(url)} \\
  -H "Authorization: Bearer $API_KEY" \\
  -H 'Content-Type: application/json' \\
  -H "Idempotency-Key: $(uuidgen)" \\
  --data-raw ${shellWord(JSON.stringify(body, undefined, 2))}`
}

function javaScript(url: string, body: object): string {
  return `const response = await fetch(${JSON.stringify(url)}, {
  method: 'POST',
  headers: {
    Authorization: \`Bearer \${process.env.API_KEY}\`,
    'Content-Type': 'application/json',
    'Idempotency-Key': crypto.randomUUID(),
  },
  body: JSON.stringify(${indented(JSON.stringify(body, undefined, 2))}),
  signal: AbortSignal.timeout(30_000),
})
console.log(response.status, await response.json())`
}

function python(url: string, body: object): string {
  return `import os, uuid
import requests

response = requests.post(
    ${JSON.stringify(url)},
    headers={
        "Authorization": f"Bearer {os.environ['API_KEY']}",
        "Idempotency-Key": str(uuid.uuid4()),
    },
    json=${indented(pythonLiteral(body, ''), '    ')},
    timeout=30,
)
print(response.status_code, response.json())`
}

/** A text in single quotes, between which a shell treats only the quote itself specially. */
function shellWord(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`
}

function indented(text: string, by = '  '): string {
  return text.replaceAll('\n', `\n${by}`)
}

/** A value as a Python literal. Strings are as in JSON; true, false and null differ. */
function pythonLiteral(value: unknown, margin: string): string {
  if (value === null || value === undefined) return 'None'
  if (typeof value === 'boolean') return value ? 'True' : 'False'
  if (typeof value !== 'object') return JSON.stringify(value)
  const inner = `${margin}    `
  const [open, close] = Array.isArray(value) ? ['[', ']'] : ['{', '}']
  const members = Array.isArray(value)
    ? value.map((item) => pythonLiteral(item, inner))
    : Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}: ${pythonLiteral(item, inner)}`)
  if (members.length === 0) return open + close
  return `${open}\n${members.map((member) => `${inner}${member},\n`).join('')}${margin}${close}`
}
