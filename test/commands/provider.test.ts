import { randomBytes, randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { withTestDatabase } from '../support/database.ts'
import { mediadockHere, type Ended } from './mediadock.ts'

it.each([
  [
    ['credits', 'grant', '--account', 'a', '--credits', 'many'],
    /^mediadock: credits must be a decimal above 0 with at most 6 places\n$/,
  ],
  [['credits', 'grant', '--account', 'a', '--credits', '-5'], /^mediadock: .*credits/],
  [['credits', 'grant', '--account', ' a', '--credits', '5'], /^mediadock: account must be/],
  [['keys', 'create', '--account', 'a', '--name', 'x\ny', '--environment', 'live'], /^mediadock: name must be/],
  [['faults', 'set', randomUUID(), 'failed=2'], /^mediadock: failed/],
  [['faults', 'set', randomUUID()], /^mediadock: give at least one of/],
])('mediadock provider %j is wrong usage: exit 2, in one line, without asking Postgres', async (args, line) => {
  const env = { DATABASE_URL: 'postgres://u:p@127.0.0.1:9/d', PROVIDER_SECRET_KEY: randomBytes(32).toString('base64') }
  const { code, stderr } = await mediadockHere(env, 'provider', ...args)
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringMatching(line) })
})

it('exits with 1 for a valid command that fails', async () => {
  const { url } = await withTestDatabase()
  const { code, stderr } = await mediadockHere(
    { DATABASE_URL: url },
    'provider',
    'faults',
    'set',
    randomUUID(),
    'failed=1',
  )
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(/^mediadock: there is no key /) })
})

it('lists the models of PROVIDER_CATALOG, and exits with 78 for an invalid file', async () => {
  const { url } = await withTestDatabase()
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-catalog-'))
  onTestFinished(() => fs.rm(folder, { recursive: true }))
  const file = path.join(folder, 'models.json')
  const model = {
    slug: 'mine',
    type: 'audio',
    name: 'Mine',
    capabilities: ['c'],
    environments: ['live'],
    engine: 'local-audio',
  }
  const write = (changes: object) =>
    fs.writeFile(
      file,
      JSON.stringify({ models: [{ ...model, input_schema: {}, pricing: { credits_base: 1 }, ...changes }] }),
    )
  const list = () =>
    mediadockHere({ DATABASE_URL: url, PROVIDER_CATALOG: file }, 'provider', 'models', 'list', '--json')
  await write({})
  expect(JSON.parse((await list()).stdout)).toEqual([
    { slug: 'mine', type: 'audio', name: 'Mine', live: true, sandbox: false },
  ])
  await write({ slug: 'No Slug' })
  expect(await list()).toMatchObject({
    code: 78,
    stderr: expect.stringContaining(`PROVIDER_CATALOG ${file} models.No Slug.slug: `),
  })
})

it('each action changes the database and prints its result', async () => {
  const { url, sql } = await withTestDatabase()
  const env = { DATABASE_URL: url, PROVIDER_SECRET_KEY: randomBytes(32).toString('base64') }
  const done = ({ code, stdout, stderr }: Ended) => {
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    return stdout
  }
  const provider = async (...args: string[]) => done(await mediadockHere(env, 'provider', ...args))
  const wanted = ['--account', 'acme', '--name', 'ci', '--environment', 'sandbox', '--scopes', 'read', '--json']
  const created = JSON.parse(await provider('keys', 'create', ...wanted))
  expect(created).toMatchObject({
    account: 'acme',
    name: 'ci',
    environment: 'sandbox',
    scopes: ['read'],
    api_key: expect.stringMatching(/^service_test_/),
    signing_secret: expect.stringMatching(/^whsec_/),
  })
  expect(await provider('keys', 'create', '--account', 'other', '--name', 'ci', '--environment', 'live')).toMatch(
    /^api_key +service_live_\S+$/m,
  )
  const listed = await provider('keys', 'list', '--account', 'acme')
  expect(listed).toContain(created.id)
  expect(listed).toMatch(/valid/)
  expect(listed).not.toContain('other')

  expect(
    JSON.parse(await provider('credits', 'grant', '--account', 'acme', '--credits', '12.5', '--json')),
  ).toMatchObject({
    account: 'acme',
    balance: 12.5,
  })
  expect((await sql`select available::float8 from provider.accounts where id = 'acme'`)[0]).toEqual({ available: 12.5 })
  expect(
    (
      await sql`select via, actor, action, detail from provider.audit where target = 'acme' order by id desc limit 1`
    )[0],
  ).toEqual({
    via: 'cli',
    actor: `${os.userInfo().username}@${os.hostname()}`,
    action: 'credits_grant',
    detail: { credits: '12.5', balance: 12.5 },
  })

  const model = async () =>
    JSON.parse(await provider('models', 'list', '--json')).find(({ slug }: { slug: string }) => slug === 'aurora-image')
  await provider('models', 'disable', 'aurora-image', '--environment', 'live')
  expect(await model()).toMatchObject({ live: false, sandbox: true })
  await provider('models', 'enable', 'aurora-image', '--environment', 'live')
  expect(await model()).toMatchObject({ live: true, sandbox: true })

  const faults = async () => (await sql`select faults from provider.api_keys where id = ${created.id}`)[0]?.['faults']
  await provider('faults', 'set', created.id, 'failed=0.5', 'late_seconds=2')
  expect(await faults()).toEqual({ failed: 0.5, late_seconds: 2 })
  await provider('faults', 'clear', created.id)
  expect(await faults()).toBeNull()

  await provider('keys', 'revoke', created.id)
  expect(await provider('keys', 'list')).toMatch(/revoked/)
  expect(await mediadockHere(env, 'provider', 'cancel', randomUUID())).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('there is no request'),
  })
  expect(JSON.parse(await provider('ledger', 'check', '--json'))).toMatchObject({ ok: true })
  await sql`update provider.accounts set available = available + 1 where id = 'acme'`
  expect(await mediadockHere(env, 'provider', 'ledger', 'check')).toMatchObject({
    code: 1,
    stdout: expect.stringContaining('acme'),
  })
  expect(await mediadockHere(env, 'provider', 'bananas')).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('unknown action'),
  })
})
