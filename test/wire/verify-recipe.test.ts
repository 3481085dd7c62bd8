import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sign } from '../../src/wire/signature.ts'

const run = promisify(execFile)
const isThere = async (program: string, ...args: string[]) =>
  run(program, args).then(
    () => true,
    () => false,
  )
const hasPython = await isThere('python3', '--version')
const hasGo = await isThere('go', 'version')
let folder: string
beforeAll(async () => {
  folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-verifying-'))
})
afterAll(() => fs.rm(folder, { recursive: true, force: true }))

const secret = 'whsec_a "secret" é'
const now = 1_700_000_000
const body = Buffer.from('{"prompt":"é 🐚\\n"}')
const good = sign(body, secret, now)
/** Each case with the expected answer. */
const cases: [name: string, body: Buffer, signature: string, at: number, isAuthentic: boolean][] = [
  ['as it was signed', body, good, now, true],
  ['five minutes later', body, good, now + 300, true],
  ['more than five minutes later', body, good, now + 301, false],
  ['more than five minutes before', body, good, now - 301, false],
  ['another body', Buffer.concat([body, Buffer.from(' ')]), good, now, false],
  ['another secret', body, sign(body, 'other', now), now, false],
  ['another time', body, good.replace(String(now), String(now + 1)), now, false],
  ['no signature', body, '', now, false],
  ['a short digest', body, good.slice(0, -2), now, false],
  ['a line end after it', body, `${good}\n`, now, false],
  [
    'bytes that are not text',
    Buffer.from([0xff, 0x00, 0x0a]),
    sign(Buffer.from([0xff, 0x00, 0x0a]), secret, now),
    now,
    true,
  ],
]
const given = JSON.stringify(cases.map(([, bytes, signature, at]) => [bytes.toString('hex'), signature, at]))
const page = await fs.readFile(path.resolve(import.meta.dirname, '../../docs/recipes/verify.md'), 'utf8')
const codeIn = (language: string) => page.split(`\`\`\`${language}\n`)[1]?.split('```')[0] ?? ''

async function answers(program: string, file: string, code: string): Promise<void> {
  const where = path.join(folder, file)
  await fs.writeFile(where, code)
  const { stdout } = await run(program, [where, given, secret], { timeout: 20_000 })
  expect(JSON.parse(stdout)).toEqual(cases.map(([, , , , isAuthentic]) => isAuthentic))
}

describe('docs/recipes/verify.md', () => {
  it('in TypeScript answers as the spec says', async () => {
    const calls = `const [, , given = '', secret = ''] = process.argv
console.log(JSON.stringify(JSON.parse(given).map(([body, signature, at]: [string, string, number]) => isAuthentic(Buffer.from(body, 'hex'), signature, secret, at))))`
    await answers(process.execPath, 'verify.mts', `${codeIn('ts')}\n${calls}\n`)
  })

  it.skipIf(!hasPython)('in Python answers as the spec says', async () => {
    const calls = `import json, sys
print(json.dumps([is_authentic(bytes.fromhex(b), s, sys.argv[2], at) for b, s, at in json.loads(sys.argv[1])]))`
    await answers('python3', 'verify.py', `${codeIn('python')}\n\n${calls}\n`)
  })

  it.skipIf(!hasGo)(
    'in Go answers as the spec says',
    async () => {
      const calls = `func main() {
	var given [][]any
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		panic(err)
	}
	answers := []bool{}
	for _, one := range given {
		body, _ := hex.DecodeString(one[0].(string))
		answers = append(answers, IsAuthentic(body, one[1].(string), os.Args[2], time.Unix(int64(one[2].(float64)), 0)))
	}
	text, _ := json.Marshal(answers)
	fmt.Println(string(text))
}`
      const main = codeIn('go')
        .replace('package webhooks', 'package main')
        .replace('import (', 'import (\n\t"encoding/json"\n\t"fmt"\n\t"os"')
      const where = path.join(folder, 'verify.go')
      await fs.writeFile(where, `${main}\n\n${calls}\n`)
      const { stdout } = await run('go', ['run', where, given, secret], { timeout: 60_000 })
      expect(JSON.parse(stdout)).toEqual(cases.map(([, , , , isAuthentic]) => isAuthentic))
    },
    70_000,
  )
})
