import { setTimeout as delay } from 'node:timers/promises'
import zlib from 'node:zlib'
import sharp from 'sharp'
import { ffmpegOutput } from '../../provider/engines/probe.ts'
import type { Serve } from '../../provider/support/reference-site.ts'

/** `site` misbehaves and is allowed by name; `secret` is a server of the inside that nothing may reach. */
export type Places = { site: string; secret: string; secretPort: number; media: string }

export type HostileReference = {
  name: string
  field: 'image_url' | 'video_urls' | 'audio_urls'
  /** The given link, or the site's own root. */
  link?: (places: Places) => string
  serve?: (places: Places) => Serve | Promise<Serve>
  /** Shorter than the 10 s that one has otherwise. */
  deadlineMs?: number
  /** The message for the client, after the place of the link in the input. */
  message: RegExp
}

/** The addresses of these names. */
export const addressesOf: Record<string, readonly string[]> = {
  'private.example': ['10.0.0.1'],
  'loopback.example': ['127.0.0.1'],
  'metadata.example': ['169.254.169.254'],
  'mixed.example': ['8.8.8.8', '127.0.0.1'],
  'mixed-six.example': ['2606:4700::1111', 'fe80::1'],
  'mapped.example': ['::ffff:127.0.0.1'],
  'nat64.example': ['64:ff9b::7f00:1'],
}

const unfetched = /^could not be fetched$/
const notAPicture = /^is not a PNG, JPEG or WebP picture$/
const redirectTo =
  (target: (places: Places) => string) =>
  (places: Places): Serve =>
  (response) =>
    void response.writeHead(302, { location: target(places) }).end()
const give =
  (bytes: (places: Places) => Buffer | string | Promise<Buffer | string>, headers: Record<string, string> = {}) =>
  async (places: Places): Promise<Serve> => {
    const body = await bytes(places)
    return (response) => void response.writeHead(200, headers).end(body)
  }

/** Of 16 by 16 pixels, 1,000 frames a second: 100,000 frames are a few hundred kilobytes. */
async function longVideo(seconds: number): Promise<Buffer> {
  const made = `-f lavfi -i color=s=16x16:r=1000:d=${seconds} -c:v libx264 -preset ultrafast -f mp4 -movflags frag_keyframe+empty_moov`
  return ffmpegOutput(made.split(' '))
}

/** The beginning of an MP4, and nothing that could be played behind it. */
const brokenVideo = () =>
  Buffer.concat([Buffer.from('\0\0\0\x18ftypisom\0\0\0\0isommp42', 'latin1'), Buffer.alloc(5000, 0x41)])

const picture = () => sharp({ create: { width: 64, height: 64, channels: 3, background: '#e00000' } })

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data])
  const around = Buffer.alloc(8)
  around.writeUInt32BE(data.length, 0)
  around.writeUInt32BE(zlib.crc32(body), 4)
  return Buffer.concat([around.subarray(0, 4), body, around.subarray(4)])
}

/** A PNG of one bit a pixel, whose rows are all zero: 900 megapixels in 110 kB. */
function pngBomb(edge = 30_000): Buffer {
  const header = Buffer.alloc(13)
  header.writeUInt32BE(edge, 0)
  header.writeUInt32BE(edge, 4)
  header[8] = 1
  const rows = zlib.deflateSync(Buffer.alloc(edge * (1 + Math.ceil(edge / 8))))
  const signature = Buffer.from('\x89PNG\r\n\x1a\n', 'latin1')
  return Buffer.concat([signature, chunk('IHDR', header), chunk('IDAT', rows), chunk('IEND', Buffer.alloc(0))])
}

/** A small JPEG whose header promises 65,500 by 65,500 pixels. */
async function jpegBomb(): Promise<Buffer> {
  const bytes = await picture().jpeg().toBuffer()
  const frame = bytes.indexOf(Buffer.from([0xff, 0xc0]))
  bytes.writeUInt16BE(65_500, frame + 5)
  bytes.writeUInt16BE(65_500, frame + 7)
  return bytes
}

/** A WebP of nothing but an extended header for the largest canvas there is. */
function webpBomb(): Buffer {
  const bytes = Buffer.alloc(30, 0xff)
  bytes.write('RIFF', 0, 'latin1')
  bytes.writeUInt32LE(22, 4)
  bytes.write('WEBPVP8X', 8, 'latin1')
  bytes.writeUInt32LE(10, 16)
  bytes.writeUInt32LE(0, 20)
  return bytes
}

const tenGigabytes = 10_000_000_000
const megabyte = Buffer.alloc(1_000_000)

async function endless(response: Parameters<Serve>[0], first: Buffer): Promise<void> {
  response.writeHead(200)
  response.write(first)
  for (let sent = 0; sent < tenGigabytes && !response.destroyed; sent += megabyte.length) {
    if (!response.write(megabyte))
      await Promise.race([new Promise((resolve) => response.once('drain', resolve)), delay(1000)])
  }
  response.end()
}

const svg = (secret: string) =>
  `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="9" height="9">
<image xlink:href="${secret}/1.png"/><image href="file:///etc/passwd"/><style>@import url("${secret}/1.css")</style></svg>`

export const hostileReferences: HostileReference[] = [
  {
    name: 'redirects to this machine',
    field: 'image_url',
    serve: redirectTo(({ secret }) => secret),
    message: unfetched,
  },
  {
    name: 'redirects to this machine over https',
    field: 'image_url',
    serve: redirectTo(({ secretPort }) => `https://127.0.0.1:${secretPort}/`),
    message: unfetched,
  },
  {
    name: 'redirects to this machine as one number',
    field: 'image_url',
    serve: redirectTo(({ secretPort }) => `https://2130706433:${secretPort}/`),
    message: unfetched,
  },
  {
    name: 'redirects to this machine by name',
    field: 'image_url',
    serve: redirectTo(({ secretPort }) => `https://localhost:${secretPort}/`),
    message: unfetched,
  },
  {
    name: 'redirects to a name that resolves to this machine',
    field: 'image_url',
    serve: redirectTo(({ secretPort }) => `https://loopback.example:${secretPort}/`),
    message: unfetched,
  },
  {
    name: 'redirects to the metadata service',
    field: 'image_url',
    serve: redirectTo(() => 'http://169.254.169.254/latest/meta-data/'),
    message: unfetched,
  },
  {
    name: 'redirects to a file',
    field: 'image_url',
    serve: redirectTo(() => 'file:///etc/passwd'),
    message: unfetched,
  },
  {
    name: 'redirects to a picture in the link',
    field: 'image_url',
    serve: redirectTo(() => 'data:image/png,x'),
    message: unfetched,
  },
  { name: 'redirects to no URL', field: 'image_url', serve: redirectTo(() => 'https://['), message: unfetched },
  { name: 'redirects to itself', field: 'image_url', serve: redirectTo(() => '/'), message: unfetched },
  {
    name: 'redirects to the media host',
    field: 'image_url',
    serve: redirectTo(({ media }) => `${media}/sandbox/1.png`),
    message: unfetched,
  },
  {
    name: 'redirects with credentials',
    field: 'image_url',
    serve: redirectTo(({ site }) => site.replace('//', '//user:secret@')),
    message: unfetched,
  },
  {
    name: 'resolves to a private address',
    field: 'image_url',
    link: () => 'https://private.example/',
    message: unfetched,
  },
  {
    name: 'has come to resolve to this machine since the submit',
    field: 'image_url',
    link: ({ secretPort }) => `https://loopback.example:${secretPort}/`,
    message: unfetched,
  },
  {
    name: 'resolves to the metadata service',
    field: 'image_url',
    link: () => 'https://metadata.example/',
    message: unfetched,
  },
  {
    name: 'resolves to a public and a private address',
    field: 'image_url',
    link: ({ secretPort }) => `https://mixed.example:${secretPort}/`,
    message: unfetched,
  },
  {
    name: 'resolves to a public and a private address of IPv6',
    field: 'image_url',
    link: () => 'https://mixed-six.example/',
    message: unfetched,
  },
  {
    name: 'resolves to this machine mapped into IPv6',
    field: 'image_url',
    link: ({ secretPort }) => `https://mapped.example:${secretPort}/`,
    message: unfetched,
  },
  {
    name: 'resolves to this machine behind NAT64',
    field: 'image_url',
    link: () => 'https://nat64.example/',
    message: unfetched,
  },
  { name: 'resolves to nothing', field: 'image_url', link: () => 'https://nowhere.example/', message: unfetched },
  {
    name: 'announces 10 GB',
    field: 'video_urls',
    serve: () => (response) => void response.writeHead(200, { 'content-length': tenGigabytes }).write('x'),
    message: /^is larger than 100 MB$/,
  },
  {
    name: 'sends 10 GB of a video without a word',
    field: 'video_urls',
    serve: () => (response) => endless(response, Buffer.from('\0\0\0\x18ftypisom', 'latin1')),
    message: /^is larger than 100 MB$/,
  },
  {
    name: 'sends 10 GB of a picture without a word',
    field: 'image_url',
    serve: () => (response) => endless(response, Buffer.from('\x89PNG\r\n\x1a\n', 'latin1')),
    message: /^is larger than 20 MB$/,
  },
  {
    name: 'drips',
    field: 'image_url',
    serve: () => async (response) => {
      response.writeHead(200)
      for (const byte of await picture().png().toBuffer()) {
        if (response.destroyed) return
        response.write(Buffer.from([byte]))
        await delay(50)
      }
    },
    deadlineMs: 500,
    message: /^took longer than 0.5 s to fetch$/,
  },
  {
    name: 'never answers',
    field: 'image_url',
    serve: () => () => {},
    deadlineMs: 500,
    message: /^took longer than 0.5 s to fetch$/,
  },
  {
    name: 'breaks off',
    field: 'image_url',
    serve: () => (response) => {
      response.writeHead(200, { 'content-length': 1000 })
      response.write('\x89PNG\r\n\x1a\n', 'latin1', () => response.destroy())
    },
    message: unfetched,
  },
  {
    name: 'answers with headers of 64 kB',
    field: 'image_url',
    serve: give(() => '', { 'x-padding': 'x'.repeat(65_536) }),
    message: unfetched,
  },
  {
    name: 'answers 500',
    field: 'image_url',
    serve: () => (response) => void response.writeHead(500).end('the secret of the inside'),
    message: /^could not be fetched: the answer was 500$/,
  },
  { name: 'is empty', field: 'image_url', serve: give(() => ''), message: notAPicture },
  {
    name: 'is a page that calls itself a picture',
    field: 'image_url',
    serve: give(() => '<html>', { 'content-type': 'image/png' }),
    message: notAPicture,
  },
  {
    name: 'is an SVG with links to the inside',
    field: 'image_url',
    serve: give(({ secret }) => svg(secret), { 'content-type': 'image/png' }),
    message: notAPicture,
  },
  { name: 'is a GIF', field: 'image_url', serve: give(() => picture().gif().toBuffer()), message: notAPicture },
  {
    name: 'is 1 GB once it is inflated',
    field: 'image_url',
    serve: give(() => zlib.gzipSync(Buffer.alloc(100_000_000)), {
      'content-encoding': 'gzip',
      'content-type': 'image/png',
    }),
    message: notAPicture,
  },
  {
    name: 'is a PNG of 900 megapixels',
    field: 'image_url',
    serve: give(() => pngBomb()),
    message: /^has too many pixels$/,
  },
  {
    name: 'is a JPEG of 4,290 megapixels',
    field: 'image_url',
    serve: give(() => jpegBomb()),
    message: /^has too many pixels$/,
  },
  {
    name: 'is a WebP without a picture',
    field: 'image_url',
    serve: give(() => webpBomb()),
    message: /^(?:has too many pixels|cannot be decoded)$/,
  },
  {
    name: 'is half a picture',
    field: 'image_url',
    serve: give(async () =>
      (await picture().resize(600, 600).png({ compressionLevel: 0 }).toBuffer()).subarray(0, 100_000),
    ),
    message: /^cannot be decoded$/,
  },
  {
    name: 'is not on the media host',
    field: 'image_url',
    link: ({ media }) => `${media}/sandbox/1.png`,
    message: /^is not on the media host$/,
  },
  {
    name: 'is a picture in the place of a video',
    field: 'video_urls',
    serve: give(() => picture().png().toBuffer()),
    message: /^is not a video$/,
  },
  {
    name: 'is a playlist of the inside in the place of a video',
    field: 'video_urls',
    serve: give(
      ({ secret }) => `#EXTM3U\n#EXTINF:1,\n${secret}/1.ts\n#EXTINF:1,\nfile:///etc/passwd\n#EXT-X-ENDLIST\n`,
    ),
    message: /^is not a video$/,
  },
  {
    name: 'is a list of files in the place of a sound',
    field: 'audio_urls',
    serve: give(() => "ffconcat version 1.0\nfile '/etc/passwd'\n"),
    message: /^is not a sound$/,
  },
  {
    name: 'is a video of 100,000 frames',
    field: 'video_urls',
    serve: give(() => longVideo(100)),
    message: /^has more than 18000 frames$/,
  },
  {
    name: 'only begins like a video',
    field: 'video_urls',
    serve: give(() => brokenVideo()),
    message: /^cannot be decoded$/,
  },
  {
    name: 'is a video without sound in the place of a sound',
    field: 'audio_urls',
    serve: give(() => longVideo(1)),
    message: /^cannot be decoded$/,
  },
  {
    name: 'only begins like a sound',
    field: 'audio_urls',
    serve: give(() => 'ID3' + 'x'.repeat(5000)),
    message: /^cannot be decoded$/,
  },
]
