import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { parsePostgresUrl, placeOfUrl, PostgresUrlError } from '../../../src/platform/postgres/url.ts'

const base = 'postgres://u:p%3Fw@a:1,b:2/db'

async function rootFile(): Promise<string> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-url-'))
  onTestFinished(() => fs.rm(folder, { recursive: true }))
  await fs.writeFile(path.join(folder, 'root.crt'), 'ROOT')
  return path.join(folder, 'root.crt')
}

it.each([
  ['', false],
  ['?sslmode=disable', false],
  ['?sslmode=allow', 'prefer'],
  ['?sslmode=prefer', 'prefer'],
  ['?sslmode=require', { rejectUnauthorized: false }],
  ['?ssl=true', { rejectUnauthorized: false }],
  ['?sslmode=verify-full', { rejectUnauthorized: true }],
  ['?sslrootcert=system', { rejectUnauthorized: true }],
  ['?sslmode=verify-ca', { rejectUnauthorized: true, checkServerIdentity: expect.any(Function) }],
])('%j sets TLS as libpq does', (query, ssl) => {
  expect(parsePostgresUrl(base + query)).toEqual({ url: base, ssl })
})

it.each([
  [base, 'a:1,b:2/db'],
  ['postgresql://u:hush@db.internal/media?sslmode=require&password=hush', 'db.internal:5432/media'],
  ['postgres://[::1]:5433/media', '[::1]:5433/media'],
  ['postgres://db.internal', 'db.internal:5432'],
])('%s becomes %s, without user and password', (url, place) => {
  expect(placeOfUrl(url)).toBe(place)
})

it('a root certificate is read, and turns require into verify-ca', async () => {
  const root = await rootFile()
  const at = (mode: string) => parsePostgresUrl(`${base}?sslmode=${mode}&sslrootcert=${encodeURIComponent(root)}`).ssl
  expect(at('verify-full')).toEqual({ ca: 'ROOT', rejectUnauthorized: true })
  expect(at('require')).toEqual({ ca: 'ROOT', rejectUnauthorized: true, checkServerIdentity: expect.any(Function) })
})

it('other parameters are passed to the server', () => {
  expect(parsePostgresUrl(`${base}?target_session_attrs=any`).url).toBe(base)
  expect(parsePostgresUrl(`${base}?application_name=x&sslmode=require&target_session_attrs=read-write`).url).toBe(
    `${base}?application_name=x&target_session_attrs=read-write`,
  )
})

it.each([
  ['?sslmode=banana', /unknown sslmode: it is one of disable, allow, prefer, require, verify-ca, verify-full/],
  ['?sslmode=verify-full&sslrootcert=/nowhere/root.crt', /an sslrootcert that cannot be read: ENOENT/],
  ['?target_session_attrs=readwrite', /unknown target_session_attrs: it is one of any, read-write/],
])('%s is refused without quoting the connection string', (query, message) => {
  const read = () => parsePostgresUrl(base + query)
  expect(read).toThrow(PostgresUrlError)
  expect(read).toThrow(message)
  expect(read).not.toThrow(/p%3Fw/)
})
