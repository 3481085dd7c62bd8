import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { submitSnippets } from '../../../src/provider/console/snippets.ts'
import { startTestProvider, type TestProvider } from '../support/running-provider.ts'

const run = promisify(execFile)
let provider: TestProvider
let folder: string
beforeAll(async () => {
  provider = await startTestProvider()
  folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-snippets-'))
  // Stand-ins for programs that the snippets use and that may be missing.
  await fs.writeFile(path.join(folder, 'requests.py'), pythonRequests)
  await fs.writeFile(path.join(folder, 'uuidgen'), '#!/bin/sh\necho 5d3f0b0e-7c1a-4d57-9d7e-2f6b1c1f0a11\n', {
    mode: 0o755,
  })
})
afterAll(async () => {
  await provider.stop()
  await fs.rm(folder, { recursive: true, force: true })
})

const pythonRequests = `import json as j, urllib.request
class Answer:
    def __init__(self, r): self.status_code = r.status; self.body = r.read()
    def json(self): return j.loads(self.body)
def post(url, headers, json, timeout):
    headers = {**headers, 'Content-Type': 'application/json'}
    return Answer(urllib.request.urlopen(urllib.request.Request(url, j.dumps(json).encode(), headers), timeout=timeout))
`

const commands: Record<string, (file: string) => [string, string[]]> = {
  curl: (file) => ['bash', [file]],
  JavaScript: (file) => [process.execPath, ['--input-type=module', '--eval', `await import(${JSON.stringify(file)})`]],
  Python: (file) => ['python3', [file]],
}
const isThere = async (program: string, ...args: string[]) =>
  run(program, args).then(
    () => true,
    () => false,
  )
const there: Record<string, boolean> = {
  curl: (await isThere('curl', '--version')) && (await isThere('bash', '--version')),
  JavaScript: true,
  Python: await isThere('python3', '--version'),
}
const nasty = `it's "quoted" \\n \\ $(touch gone) \`ls\` \${process.exit(3)} %s {x}\n\ttwo lines 🐚 \u2028 </script>`

it.for(Object.keys(commands).filter((language) => there[language]))(
  '%s sends exactly the values of the form',
  async (language) => {
    const key = await provider.createKey({ account: `by-${language}` })
    const input = { prompt: nasty, duration: 8, generate_audio: true, image_urls: [`https://example.com/a'b"c`] }
    const snippets = submitSnippets({
      baseUrl: provider.url,
      slug: 'meridian-text-to-video',
      input,
      webhookUrl: undefined,
    })
    const code = snippets.find((snippet) => snippet.language === language)?.code ?? ''
    expect(code).not.toContain(key.api_key)
    const file = path.join(folder, language === 'JavaScript' ? 'call.mjs' : `call-${language}`)
    await fs.writeFile(file, code)
    const [program, args] = commands[language]!(file)
    const env = { ...process.env, API_KEY: key.api_key, PYTHONPATH: folder, PATH: `${folder}:${process.env['PATH']}` }
    await run(program, args, { env, cwd: folder, timeout: 20_000 })
    const [made] = await provider.database
      .sql`select input from provider.requests where account_id = ${`by-${language}`}`
    expect(made?.['input']).toMatchObject(input)
    expect((await fs.readdir(folder)).includes('gone')).toBe(false)
  },
)
