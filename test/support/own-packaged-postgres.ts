import { describe, inject, onTestFinished } from 'vitest'
import { startPackagedPostgres, type PackagedOptions, type PackagedPostgres } from './packaged-postgres.ts'
import { quickFolder } from './quick-folder.ts'

/** For what needs a packaged PostgreSQL: skipped, and shown as skipped, where none is installed. */
export const describeOnPackaged = describe.skipIf(inject('packagedBinaries') === '')

/** A packaged server for one test, to be crashed and spoken to over TLS. */
export async function withPackagedPostgres(
  options: Omit<PackagedOptions, 'binaries' | 'template'> = {},
): Promise<PackagedPostgres> {
  const server = await startPackagedPostgres({
    binaries: inject('packagedBinaries'),
    template: inject('packagedTemplate'),
    within: await quickFolder(),
    ...options,
  })
  onTestFinished(() => server.remove())
  return server
}
