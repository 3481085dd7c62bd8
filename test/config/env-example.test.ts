import fs from 'node:fs/promises'
import path from 'node:path'
import { parseEnv } from 'node:util'
import { expect, it } from 'vitest'
import { programs, readConfig, settingNames } from '../../src/config/config.ts'

const root = path.resolve(import.meta.dirname, '../..')
const laptop = {
  databaseUrl: 'postgres://local/x',
  keys: '[{"name":"x","signing_secret":"whsec_of_this_test","retired":true}]',
  secretKey: 'A'.repeat(43) + '=',
}

it('.env.example has each setting that is read, with a comment, and no other', async () => {
  const text = await fs.readFile(path.join(root, '.env.example'), 'utf8')
  expect(Object.keys(parseEnv(text)).toSorted()).toEqual([...settingNames()].toSorted())
  for (const block of text.split(/\n\n/)) expect(block.startsWith('#') || block.startsWith('NODE_ENV=')).toBe(true)
})

it('has the defaults: what it says changes nothing where it is no example', async () => {
  const given = parseEnv(await fs.readFile(path.join(root, '.env.example'), 'utf8'))
  const examples = ['NODE_ENV', 'DATABASE_URL', 'GENERATION_API_URL', 'GENERATION_KEYS_FILE', 'WEBHOOK_PUBLIC_URL']
  const defaults = Object.fromEntries(Object.entries(given).filter(([name]) => !examples.includes(name)))
  expect(readConfig(defaults, programs, laptop)).toEqual(readConfig({}, programs, laptop))
})

it('the tables of the README and of the provider’s page name no setting that is not read', async () => {
  const read = settingNames()
  for (const file of ['README.md', 'docs/operations.md', 'docs/provider.md']) {
    const text = await fs.readFile(path.join(root, file), 'utf8')
    const named = [...text.matchAll(/`([A-Z]+(?:_[A-Z]+)+)`/g)].map(([, name = '']) => name)
    const ours = named.filter((name) =>
      /_(?:URL|HOST|PORT|TOKEN|FILE|SECONDS|CRON|DAYS|ROWS|BYTES|MINUTE|SIZE|START|LEVEL|KEYS|PROXY|HOSTS|DIR|KEY)$/.test(
        name,
      ),
    )
    expect(ours.length).toBeGreaterThan(0)
    // What AWS names is read by its own client.
    expect(ours.filter((name) => !read.has(name) && !name.startsWith('AWS_'))).toEqual([])
  }
})
