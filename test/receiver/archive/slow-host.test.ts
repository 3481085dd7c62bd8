import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { createDownloader } from '../../../src/receiver/archive/download.ts'
import { pngOf, temporaryFolder } from './media-stand.ts'

/** A host that gives so many bytes each 20 ms. */
async function hostOf(file: Buffer, bytesEach: number): Promise<string> {
  const server = http.createServer((_req, res) => {
    res.writeHead(200, { 'content-length': file.length })
    let at = 0
    const timer = setInterval(() => {
      res.write(file.subarray(at, (at += bytesEach)))
      if (at >= file.length) res.end()
    }, 20)
    res.once('close', () => clearInterval(timer))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`
}

it.each([
  ['drips, though never silent', 10, { kind: 'unreachable', detail: 'the download is slower than 16 KiB per second' }],
  ['is slow, but not that slow', 4000, { kind: 'spooled' }],
])('a host that %s, at %i bytes in 20 ms', async (_how, bytesEach, expected) => {
  const folder = await temporaryFolder()
  onTestFinished(folder.remove)
  const file = Buffer.concat([pngOf(10), Buffer.alloc(100_000)])
  const downloader = createDownloader({
    maxBytes: 1_000_000,
    mediaHosts: undefined,
    production: false,
    slowAfterMs: 200,
  })
  onTestFinished(downloader.close)
  const wish = {
    url: await hostOf(file, bytesEach),
    kind: 'image',
    spoolDir: folder.root,
    signal: AbortSignal.timeout(4000),
  } as const
  expect(await downloader.download(wish)).toMatchObject(expected)
})
