import fs from 'node:fs/promises'
import path from 'node:path'
import { temporaryFolder } from '../engines/engine-run.ts'
import { picture, sendJson, startEngineStand } from '../engines/engine-stand.ts'

const builtIn = path.resolve(import.meta.dirname, '../../../src/provider/catalog/catalog.yaml')

/**
 * The built-in catalog in a file, but an engine of the test makes all pictures: drawing one takes a core for a second.
 * A job ends once `isReady` is true for its model and number.
 */
export async function quickPictures(isReady: (model: string, job: number) => boolean): Promise<string> {
  const base64 = (await picture('png')).toString('base64')
  const stand = await startEngineStand(({ job, response }) => {
    const { model } = stand.started[job - 1]?.job ?? {}
    sendJson(response, isReady(String(model), job) ? { status: 'done', outputs: [{ base64 }] } : { status: 'running' })
  })
  const file = path.join(await temporaryFolder(), 'models.yaml')
  const elsewhere = `engine: http\n    engine_settings: { url: '${stand.url}', poll_seconds: 0.1 }`
  const catalog = await fs.readFile(builtIn, 'utf8')
  await fs.writeFile(file, catalog.replaceAll(/\bengine: local-image(?:-with-original)?$/gm, elsewhere))
  return file
}
