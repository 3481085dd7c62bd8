import { execFile } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import postgres from 'postgres'
import { expect, inject, it, onTestFinished } from 'vitest'
import { printedCommands } from '../ops/printed-commands.ts'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { describeOnPackaged } from '../support/own-packaged-postgres.ts'
import { startTestReceiver, type TestReceiver } from '../support/receiver.ts'
import { deliver, failed, type Sample } from '../support/webhooks.ts'

describeOnPackaged('docs/postgres.md, "Backup and restore"', () => {
  it('restores all data, and readers of the feed continue without a gap', async () => {
    const [dump, restore] = await printedCommands('postgres.md', 'Backup and restore')
    const { url, sql } = await withTestDatabase('packaged')
    const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-restore-'))
    onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
    const name = `restored_${randomUUID().slice(0, 8)}`
    const ADMIN_URL = inject('packagedPostgresUrl')
    const RESTORED_URL = ADMIN_URL.replace(/postgres$/, name)
    const database = path.basename(new URL(url).pathname)
    const run = (commands = '') =>
      promisify(execFile)(
        'bash',
        ['-ec', commands.replaceAll('media_restored', name).replaceAll('/media"', `/${database}"`)],
        {
          cwd: folder,
          env: {
            PATH: `${inject('packagedBinaries')}:${process.env['PATH']}`,
            ADMIN_URL,
          },
        },
      )
    const sendAll = async ({ webhookUrl }: TestReceiver, all: readonly { sample: Sample; webhookId: string }[]) =>
      Promise.all(all.map(({ sample, webhookId }) => deliver(webhookUrl, sample.body, { webhookId })))
    const read = (from: postgres.Sql, after: string) =>
      from<
        { position: string; request_id: string }[]
      >`select position::text, request_id from mediadock.feed where position > ${after} order by position`
    const make = (count: number) => Array.from({ length: count }, () => ({ sample: failed(), webhookId: randomUUID() }))

    const before = await startTestReceiver({ databaseUrl: url })
    const [kept, lost] = [make(20), make(5)]
    await sendAll(before, kept)
    await eventually(async () => (await read(sql, '0')).length === 20)
    await run(dump)
    await sendAll(before, lost)
    // A reader that has seen more than the backup knows.
    const seen = await eventually(async () => {
      const rows = await read(sql, '0')
      return rows.length === 25 && rows
    })
    await before.stop()

    await run(restore)
    onTestFinished(
      async () =>
        void (await run(`psql --quiet --command='drop database if exists media_restored with (force)' "$ADMIN_URL"`)),
    )
    const restored = postgres(RESTORED_URL, { max: 1, onnotice: () => {} })
    onTestFinished(() => restored.end({ timeout: 1 }))
    const after = await startTestReceiver({ databaseUrl: RESTORED_URL, settings: { migrateOnStart: true } })
    onTestFinished(after.stop)
    await eventually(async () => (await fetch(new URL('/readyz', after.webhookUrl))).status === 200)
    expect(await restored`select count(*)::int as results from mediadock.results`).toEqual([{ results: 20 }])
    for (const answer of await sendAll(after, kept))
      expect(answer).toMatchObject({ status: 200, json: { status: 'duplicate' } })
    for (const answer of await sendAll(after, lost))
      expect(answer).toMatchObject({ status: 200, json: { status: 'accepted' } })
    const again = await eventually(async () => {
      const rows = await read(restored, seen.at(-1)?.position ?? '')
      return rows.length === 5 && rows
    })
    expect(new Set(again.map(({ request_id }) => request_id))).toEqual(
      new Set(lost.map(({ sample }) => sample.requestId)),
    )
  })
})
