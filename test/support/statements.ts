import type { Database } from '../../src/platform/postgres/postgres.ts'

type Run = () => Promise<unknown>

/** The same database, where each statement of the code under test goes through `around`; prepared ones pass their text. */
export function aroundStatements(db: Database, around: (run: Run, text: string) => Promise<unknown>): Database {
  const client = Reflect.get(db, '$client')
  const watched = new Proxy(client, {
    get: (target, name) => {
      if (name !== 'unsafe') return Reflect.get(target, name)
      return (text: string, ...rest: unknown[]) => {
        const run = async () => target.unsafe(text, ...rest)
        // The check for a pooler runs once.
        return text.includes('pg_backend_pid() as pid') ? run() : around(run, text)
      }
    },
  })
  return new Proxy(db, {
    get: (target, name) => {
      if (name === '$client') return watched
      if (name !== 'execute') return Reflect.get(target, name)
      return (query: Parameters<typeof target.execute>[0]) => around(async () => target.execute(query), '')
    },
  })
}

/** The same database, where results are written only after this. */
export function landingAfter(db: Database, after: Promise<unknown>): Database {
  return aroundStatements(db, async (run, text) => {
    if (text.includes('insert into mediadock.requests')) await after
    return run()
  })
}
