import fs from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { withEmptyDatabase } from '../support/database.ts'
import { mediadockHere } from './mediadock.ts'

const migrationsOf = async (program: string) =>
  (await fs.readdir(path.resolve(import.meta.dirname, '../../drizzle', program))).filter((name) =>
    name.endsWith('.sql'),
  ).length

it(
  'mediadock migrate migrates one program, then the other, and reports the number of migrations',
  { timeout: 120_000 },
  async () => {
    const env = { DATABASE_URL: await withEmptyDatabase() }
    const [receiver, provider] = await Promise.all(['receiver', 'provider'].map(migrationsOf))

    expect(await mediadockHere(env, 'migrate', 'receiver')).toEqual({
      code: 0,
      stdout: `receiver: ${receiver} applied\n`,
      stderr: '',
    })
    expect(await mediadockHere(env, 'migrate')).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(
        new RegExp(`^(?=[^]*^receiver: up to date$)(?=[^]*^provider: ${provider} applied$)`, 'm'),
      ),
    })
    expect(await mediadockHere(env, 'migrate', 'bananas')).toEqual({
      code: 2,
      stdout: '',
      stderr: 'mediadock: migrate takes one of receiver, provider, all\n',
    })
    expect(await mediadockHere({ DATABASE_URL: `${env.DATABASE_URL}_not_there` }, 'migrate', 'receiver')).toMatchObject(
      {
        code: 1,
        stdout: '',
        stderr: expect.stringMatching(/^mediadock: .*_not_there/),
      },
    )
  },
)
