import { randomBytes } from 'node:crypto'
import postgres from 'postgres'
import { inject, onTestFinished } from 'vitest'

export type TestDatabase = {
  url: string
  /** A client of the test's own, to look at what the program wrote. */
  sql: postgres.Sql
  drop: () => Promise<void>
}

export type TestServer = 'embedded' | 'packaged'

/** The servers of this run, for `describe.each`: what lands or reads is shown on both, where both are. */
export const testServers: readonly TestServer[] =
  inject('packagedPostgresUrl') === '' ? ['embedded'] : ['embedded', 'packaged']

/** Where it need not be shown on both: the server as people have it, if there is one. */
export const preferredServer: TestServer = testServers.at(-1) ?? 'embedded'

/** For `describe.each` where it is not the statements that matter but what the program does with their answers: both in the long form. */
export const usualServers: readonly TestServer[] = process.env['CHAOS'] === 'long' ? testServers : [preferredServer]

/** A clone of the migrated template: call it in `beforeAll` and `drop` it in `afterAll`. */
export async function createTestDatabase(server: TestServer = 'embedded'): Promise<TestDatabase> {
  const adminUrl = inject(server === 'embedded' ? 'postgresUrl' : 'packagedPostgresUrl')
  const name = `test_${randomBytes(6).toString('hex')}`
  await asAdmin(adminUrl, (admin) => admin.unsafe(`create database ${name} template mediadock strategy file_copy`))
  const url = adminUrl.replace(/postgres$/, name)
  const sql = postgres(url, { max: 4, onnotice: () => {} })
  return {
    url,
    sql,
    drop: async () => {
      await sql.end({ timeout: 1 })
      await asAdmin(adminUrl, (admin) => admin.unsafe(`drop database if exists ${name} with (force)`))
    },
  }
}

/** The same for the length of one test. */
export async function withTestDatabase(server: TestServer = 'embedded'): Promise<TestDatabase> {
  const database = await createTestDatabase(server)
  onTestFinished(() => database.drop())
  return database
}

/** The URL of a database of the embedded server without a table in it, for the length of one test. */
export async function withEmptyDatabase(): Promise<string> {
  const adminUrl = inject('postgresUrl')
  const name = `test_${randomBytes(6).toString('hex')}`
  await asAdmin(adminUrl, (admin) => admin.unsafe(`create database ${name} template template0`))
  onTestFinished(() => asAdmin(adminUrl, (admin) => admin.unsafe(`drop database if exists ${name} with (force)`)))
  return adminUrl.replace(/postgres$/, name)
}

const admins = new Map<string, postgres.Sql>()

/** All files of a process share these clients. They disconnect when they are idle. */
async function asAdmin(url: string, work: (admin: postgres.Sql) => Promise<unknown>): Promise<void> {
  const admin = admins.get(url) ?? postgres(url, { max: 2, idle_timeout: 5, onnotice: () => {} })
  admins.set(url, admin)
  await work(admin)
}
