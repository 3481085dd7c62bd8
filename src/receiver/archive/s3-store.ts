import { rmdirSync } from 'node:fs'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { Readable } from 'node:stream'
import {
  GetObjectCommand,
  HeadObjectCommand,
  DeleteObjectCommand,
  PutObjectCommand,
  S3Client,
  S3ServiceException,
} from '@aws-sdk/client-s3'
import { linkInArchive, nameOfFile } from '../domain/archived-file.ts'
import { inStore, nameOfThumbnail, sweepSpool, type ArchiveStore } from './store.ts'

export type S3Place = { bucket: string; prefix: string; endpoint: string | undefined; region: string | undefined }

/**
 * Opens an archive in a bucket. The AWS SDK finds region, credentials and endpoint in its usual places: AWS_REGION,
 * AWS_ACCESS_KEY_ID and so on, roles of the machine, AWS_ENDPOINT_URL_S3. A file is spooled on the local disk first,
 * since its name is its hash, and sent with its length and digest.
 */
export async function openS3Store({ bucket, prefix, endpoint, region }: S3Place): Promise<ArchiveStore> {
  const spoolDir = await makeSpool()
  await sweepSpools()
  const client = new S3Client({
    // Other S3 servers usually have neither a host name per bucket nor regions.
    ...(endpoint !== undefined && { endpoint, forcePathStyle: true }),
    ...((region ?? endpoint) !== undefined && { region: region ?? 'us-east-1' }),
    maxAttempts: 3,
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    // A socket without data for this long is dead.
    requestHandler: { connectionTimeout: 5000, socketTimeout: 30_000, requestTimeout: 0 },
  })
  const at = (name: string) => ({ Bucket: bucket, Key: prefix === '' ? name : `${prefix}/${name}` })
  const soon = (signal?: AbortSignal) => ({
    // The timeout of a call that transfers no file.
    abortSignal: AbortSignal.any([AbortSignal.timeout(15_000), ...(signal ? [signal] : [])]),
  })
  return {
    spoolDir,
    sweepSpool: sweepSpools,
    urlOf: (file) => linkInArchive({ kind: 's3', bucket, prefix }, file),
    keep: ({ path: from, ...file }, signal) =>
      inStore(`keeping a file in s3://${bucket}`, async () => {
        const head = new HeadObjectCommand(at(nameOfFile(file)))
        const stored = await orMissing(() => client.send(head, soon(signal)))
        if (stored?.ContentLength === file.bytes) return
        const handle = await fs.open(from)
        const body = handle.createReadStream()
        // The SDK pipes the stream without handling its errors, and would wait forever.
        const unreadable = new AbortController()
        body.on('error', (error) => unreadable.abort(error))
        const command = new PutObjectCommand({
          ...at(nameOfFile(file)),
          Body: body,
          ContentLength: file.bytes,
          ContentType: file.contentType,
          ChecksumSHA256: Buffer.from(file.sha256, 'hex').toString('base64'),
        })
        const abortSignal = AbortSignal.any([signal, unreadable.signal])
        await client.send(command, { abortSignal }).finally(() => body.destroy())
      }),
    keepThumbnail: (sha256, bytes, signal) =>
      inStore(`keeping a thumbnail in s3://${bucket}`, async () => {
        const what = { Body: bytes, ContentLength: bytes.length, ContentType: 'image/webp' }
        await client.send(new PutObjectCommand({ ...at(nameOfThumbnail(sha256)), ...what }), { abortSignal: signal })
      }),
    read: (name, signal, range) =>
      inStore(`reading a file in s3://${bucket}`, async () => {
        const wanted = range === undefined ? {} : { Range: `bytes=${range.start}-${range.end}` }
        const found = await orMissing(() =>
          client.send(new GetObjectCommand({ ...at(name), ...wanted }), { abortSignal: signal }),
        )
        if (!(found?.Body instanceof Readable)) return undefined
        const [, whole] = /\/(\d+)$/.exec(found.ContentRange ?? '') ?? []
        return { bytes: Number(whole ?? found.ContentLength), stream: found.Body }
      }),
    remove: (file) =>
      inStore(`deleting a file in s3://${bucket}`, async () => {
        for (const name of [nameOfFile(file), nameOfThumbnail(file.sha256)])
          await orMissing(() => client.send(new DeleteObjectCommand(at(name)), soon()))
      }),
  }
}

const spoolPrefix = 'mediadock-spool-'

/** Makes a spool that only this user can access. An empty spool is deleted at the end of the process. */
async function makeSpool(): Promise<string> {
  const spoolDir = await inStore(`making a spool in ${os.tmpdir()}`, () =>
    fs.mkdtemp(path.join(os.tmpdir(), spoolPrefix)),
  )
  process.once('exit', () => {
    try {
      rmdirSync(spoolDir)
    } catch {
      // Copies that were cut have left files here. A later process deletes them.
    }
  })
  return spoolDir
}

/** Sweeps every spool of this user, since killed processes leave theirs behind. Follows no link. */
async function sweepSpools(): Promise<void> {
  const parent = os.tmpdir()
  const names = await inStore(`reading ${parent}`, () => fs.readdir(parent))
  for (const name of names.filter((one) => one.startsWith(spoolPrefix))) {
    const found = await fs.lstat(path.join(parent, name)).catch(() => undefined)
    if (found?.isDirectory() && found.uid === (process.getuid?.() ?? found.uid))
      await sweepSpool(path.join(parent, name))
  }
}

/** Returns undefined for a missing object. A missing bucket is an error. */
async function orMissing<T>(call: () => Promise<T>): Promise<T | undefined> {
  try {
    return await call()
  } catch (error) {
    if (error instanceof S3ServiceException && error.$metadata.httpStatusCode === 404 && error.name !== 'NoSuchBucket')
      return undefined
    throw error
  }
}
