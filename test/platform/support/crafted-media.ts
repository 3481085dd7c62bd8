/** MP4 files whose tables claim more than the file holds: each is a few kilobytes and cheap to make. */

const u16 = (...numbers: number[]) => {
  const bytes = Buffer.alloc(2 * numbers.length)
  for (const [index, number] of numbers.entries()) bytes.writeUInt16BE(number, 2 * index)
  return bytes
}
const u32 = (...numbers: number[]) => {
  const bytes = Buffer.alloc(4 * numbers.length)
  for (const [index, number] of numbers.entries()) bytes.writeUInt32BE(number, 4 * index)
  return bytes
}
const box = (type: string, ...content: (Buffer | string)[]) => {
  const bytes = Buffer.concat(content.map((part) => (typeof part === 'string' ? Buffer.from(part, 'latin1') : part)))
  return Buffer.concat([u32(bytes.length + 8), Buffer.from(type, 'latin1'), bytes])
}
const zeros = (bytes: number) => Buffer.alloc(bytes)

type Track = {
  handler: 'vide' | 'soun'
  sampleEntry: Buffer
  /** Samples of `sampleBytes` each, claimed by two numbers and stored nowhere. */
  samples: number
  sampleBytes: number
  /** Every chunk lies at the same place. */
  chunks: number
  data: Buffer
}

function mp4({ handler, sampleEntry, samples, sampleBytes, chunks, data }: Track): Buffer {
  const start = box('ftyp', 'isom', u32(0), 'isom')
  const mdat = box('mdat', data)
  const dataAt = start.length + 8
  const table = box(
    'stbl',
    box('stsd', u32(0, 1), sampleEntry),
    box('stts', u32(0, 1, samples, 1)),
    box('stsc', u32(0, 1, 1, Math.ceil(samples / chunks), 1)),
    box('stsz', u32(0, sampleBytes, samples)),
    box('stco', u32(0, chunks), u32(...Array.from({ length: chunks }, () => dataAt))),
  )
  const media = box(
    'mdia',
    box('mdhd', u32(0, 0, 0, 48_000, samples), u16(0x55c4, 0)),
    box('hdlr', u32(0, 0), handler, zeros(13)),
    box('minf', box('dinf', box('dref', u32(0, 1), box('url ', u32(1)))), table),
  )
  const track = box('trak', box('tkhd', u32(1, 0, 0, 1, 0, samples), zeros(60)), media)
  return Buffer.concat([start, mdat, box('moov', box('mvhd', u32(0, 0, 0, 48_000, samples), zeros(80)), track)])
}

const videoEntry = (codec: string, width: number, height: number) =>
  box(
    codec,
    zeros(6),
    u16(1),
    zeros(16),
    u16(width, height),
    u32(0x480000, 0x480000, 0),
    u16(1),
    zeros(32),
    u16(24, 0xffff),
  )

/** A video whose first frame is this PNG. The index of 80 million frames takes 1.9 GB. */
export function videoOfPng(png: Buffer, frames = 1): Buffer {
  const sampleEntry = videoEntry('png ', 16, 16)
  return mp4({ handler: 'vide', sampleEntry, samples: frames, sampleBytes: png.length, chunks: 1, data: png })
}

/** Hours of sound, which repeat one kilobyte: 4 bytes of the file stand for each 1,024. */
export function soundOfKilobytes(kilobytes: number): Buffer {
  const sampleEntry = box('sowt', zeros(6), u16(1), zeros(8), u16(1, 16, 0, 0), u32(48_000 * 65_536))
  return mp4({
    handler: 'soun',
    sampleEntry,
    samples: kilobytes * 512,
    sampleBytes: 2,
    chunks: kilobytes,
    data: Buffer.alloc(1024, 7),
  })
}
