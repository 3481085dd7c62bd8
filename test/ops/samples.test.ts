import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, inject, it, onTestFinished } from 'vitest'
import { withTestDatabase } from '../support/database.ts'
import { eventually } from '../support/eventually.ts'
import { describeOnPackaged } from '../support/own-packaged-postgres.ts'
import { startTestReceiver } from '../support/receiver.ts'
import { deliver, failed, okImage } from '../support/webhooks.ts'
import { printedCommands } from './printed-commands.ts'

describeOnPackaged('docs/production.md, "Remove the samples"', () => {
  it('removes the results of the samples and no other', async () => {
    const [commands = ''] = await printedCommands('production.md', 'Remove the samples')
    const { url, sql } = await withTestDatabase('packaged')
    const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-samples-'))
    onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
    const receiver = await startTestReceiver({ databaseUrl: url })
    onTestFinished(receiver.stop)
    const [samples, own] = [[okImage(), failed()], okImage()]
    for (const { body } of [...samples, own]) await deliver(receiver.webhookUrl, body)
    await eventually(async () => (await sql`select from mediadock.results`).length === 3)
    const printed = samples.map(({ requestId }) => `200 {"status":"accepted"}\nrequest_id ${requestId}\nwebhook_id w\n`)
    await fs.writeFile(path.join(folder, 'samples.txt'), printed.join(''))
    const database = path.basename(new URL(url).pathname)
    await promisify(execFile)('bash', ['-ec', commands.replaceAll('/media"', `/${database}"`)], {
      cwd: folder,
      env: {
        PATH: `${inject('packagedBinaries')}:${process.env['PATH']}`,
        ADMIN_URL: inject('packagedPostgresUrl'),
      },
    })
    expect(await sql`select request_id from mediadock.results`).toEqual([{ request_id: own.requestId }])
    expect(await sql`select distinct request_id from mediadock.media`).toEqual([{ request_id: own.requestId }])
  })
})
