import fs from 'node:fs/promises'
import path from 'node:path'
import { temporaryFolder } from '../engines/engine-run.ts'
import { picture, sendJson, startImagesService } from '../engines/images-service.ts'

const builtIn = path.resolve(import.meta.dirname, '../../../src/provider/catalog/catalog.yaml')

/**
 * The built-in catalog in a file, but a service of the test makes all pictures: drawing one takes a core for a second.
 * The service answers a request when `mayAnswer` of its path resolves.
 */
export async function quickPictures(mayAnswer: (path: string) => Promise<void> | undefined): Promise<string> {
  const bytes = (await picture('png')).toString('base64')
  const service = await startImagesService(async ({ request, response }) => {
    await mayAnswer(request.path ?? '')
    sendJson(response, { data: [{ b64_json: bytes }] })
  })
  const file = path.join(await temporaryFolder(), 'models.yaml')
  const elsewhere = `engine: openai-images\n    engine_settings: { url: '${service.url}', model: m }`
  const catalog = await fs.readFile(builtIn, 'utf8')
  await fs.writeFile(file, catalog.replaceAll(/\bengine: local-image(?:-with-original)?$/gm, elsewhere))
  return file
}
