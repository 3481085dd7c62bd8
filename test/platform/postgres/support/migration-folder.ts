import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { onTestFinished } from 'vitest'

/** Between two statements of a migration. */
export const breakpoint = '\n--> statement-breakpoint\n'

/** A folder of migrations as drizzle-kit writes it. */
export async function folderOf(...steps: string[]): Promise<string> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-migrations-'))
  onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
  await writeMigrations(folder, ...steps)
  return folder
}

export async function writeMigrations(folder: string, ...steps: string[]): Promise<void> {
  const entries = steps.map((_, idx) => ({
    idx,
    version: '7',
    when: 1_767_225_600_000 + idx,
    tag: `000${idx}_step`,
    breakpoints: true,
  }))
  await fs.mkdir(path.join(folder, 'meta'), { recursive: true })
  await fs.writeFile(
    path.join(folder, 'meta/_journal.json'),
    JSON.stringify({ version: '7', dialect: 'postgresql', entries }),
  )
  for (const [at, sql] of steps.entries()) await fs.writeFile(path.join(folder, `000${at}_step.sql`), sql)
}
