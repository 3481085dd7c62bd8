import { randomBytes, randomUUID } from 'node:crypto'
import { expect, it } from 'vitest'
import { withTestDatabase } from '../support/database.ts'
import { mediadock } from './mediadock.ts'

it.each([
  [['credits', 'grant', '--account', 'a', '--credits', 'many'], /^mediadock: credits must be a decimal above 0 with at most 6 places\n$/],
  [['credits', 'grant', '--account', 'a', '--credits', '-5'], /^mediadock: .*credits/],
  [['credits', 'grant', '--account', ' a', '--credits', '5'], /^mediadock: account must be/],
  [['keys', 'create', '--account', 'a', '--name', 'x\ny', '--environment', 'live'], /^mediadock: name must be/],
  [['faults', 'set', randomUUID(), 'failed=2'], /^mediadock: failed/],
  [['faults', 'set', randomUUID()], /^mediadock: give at least one of/],
])('mediadock provider %j is wrong usage: exit 2, in one line, without asking Postgres', async (args, line) => {
  const env = { DATABASE_URL: 'postgres://u:p@127.0.0.1:9/d', PROVIDER_SECRET_KEY: randomBytes(32).toString('base64') }
  const { code, stderr } = await mediadock(env, 'provider', ...args)
  expect({ code, stderr }).toEqual({ code: 2, stderr: expect.stringMatching(line) })
})

it('what is well said but cannot be done is exit 1', async () => {
  const { url } = await withTestDatabase()
  const { code, stderr } = await mediadock({ DATABASE_URL: url }, 'provider', 'faults', 'set', randomUUID(), 'failed=1')
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(/^mediadock: there is no key /) })
})
