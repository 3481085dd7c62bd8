import { setTimeout as delay } from 'node:timers/promises'
import type { Database } from '../platform/postgres/postgres.ts'
import { removeMedia, stillThere } from '../receiver/archive/removal.ts'
import { requestIdSchema } from '../wire/schemas.ts'
import { auditedCommand } from './audited-command.ts'
import { withReceiverDatabase } from './database.ts'
import { defineCommand, printJson, UsageError } from './usage.ts'

export const command = defineCommand({
  help: `
mediadock media remove <request_id> [--json]

Removes the archived media of a request: empties their columns, sets archive_error to removed, and
never archives them again. Receivers that run with MEDIA_ARCHIVE delete the files that no other
media refer to. The command waits up to 15 seconds for that and exits with 1 if files remain.
`,
  options: { json: { type: 'boolean' } },
  takesWords: true,
  run: async ({ json }, [what, given, ...more], env) => {
    if (what !== 'remove') throw new UsageError('media takes: remove <request_id>')
    if (more.length > 0) throw new UsageError('media remove takes one request_id')
    const parsed = requestIdSchema.safeParse(given)
    if (!parsed.success) throw new UsageError('the request_id must be a uuid')
    const requestId = parsed.data

    return withReceiverDatabase(env, async (db) => {
      const { known, media, files } = await auditedCommand({
        db,
        action: 'media_remove',
        target: requestId,
        detailOf: (removal) => (removal.known ? { media: removal.media, files: removal.files.length } : undefined),
        work: () => removeMedia(db, requestId),
      })
      if (!known) throw new Error(`request ${requestId} is not tracked`)
      const left = await waitForFiles(db, files)
      if (json) printJson({ media, files: files.length, files_left: left })
      else process.stdout.write(`${media} media removed, ${files.length} files to delete, ${left} not yet deleted\n`)
      if (left > 0)
        process.stderr.write('mediadock: files remain: a receiver that runs with MEDIA_ARCHIVE will delete them\n')
      return left > 0 ? 1 : 0
    })
  },
})

/** Waits until no file is left or 15 s have passed. Returns how many are left. */
async function waitForFiles(db: Database, files: readonly string[]): Promise<number> {
  const until = performance.now() + 15_000
  for (;;) {
    const left = files.length === 0 ? [] : await stillThere(db, files)
    if (left.length === 0 || performance.now() > until) return left.length
    await delay(200)
  }
}
