import { defineConfig } from 'drizzle-kit'

// Two programs, two schemas, two histories: `PROGRAM=provider npm run migration -- --name add_things`.
const program = process.env['PROGRAM'] === 'provider' ? 'provider' : 'receiver'

export default defineConfig({
  dialect: 'postgresql',
  schema: `./src/${program}/**/*schema.ts`,
  out: `./drizzle/${program}`,
  schemaFilter: [program === 'provider' ? 'provider' : 'mediadock'],
  migrations: { schema: program === 'provider' ? 'provider' : 'mediadock', table: 'migrations' },
})
