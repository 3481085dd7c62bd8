import { isDeepStrictEqual } from 'node:util'
import { deliveryIdRange } from '../domain/delivery.ts'
import { signedEnvironment, type Environment, type Keys } from '../domain/keys.ts'
import { cutTo, isTime, maxErrorMessageCharacters, maxNameCharacters } from '../domain/limits.ts'
import { outputOfItem, type MediaItem, type Report } from '../domain/report.ts'
import { requestIdOf } from '../domain/request-id.ts'
import type { Claimed } from './inbox.ts'

/** A terminal state of one request: the row to write. */
export type Landing = Omit<Report, 'jobId' | 'isInline' | 'files'> & {
  requestId: string
  externalId: string | null
  /** The source whose report it is: see storedName(). */
  sourceName: string | null
  /** Undefined also for an output that consists of one item alone. */
  output: unknown
  /** True for the provider's own result, which overrules a webhook. */
  fetched: boolean
  keyName: string
  environment: Environment | undefined
  flags: readonly string[]
  /**
   * The delivery that carried it. It leaves the inbox if its claim is still held; a replay has no claim.
   * `first` and `last` bound the ids of its webhook id.
   */
  delivery: { id: string; claims: number | undefined; first: string; last: string } | undefined
}

/** The keys and settings that a landing depends on. */
export type RowSettings = { keys: () => Keys; mediaHosts: readonly string[] | undefined }

/** The origin of a webhook or result. */
export type Origin = Pick<Landing, 'fetched' | 'sourceName' | 'keyName' | 'environment' | 'delivery'> &
  Pick<RowSettings, 'mediaHosts'>

/** A stored delivery. `claims` is undefined for a replay, which claims nothing. */
export type Identified = Pick<Claimed, 'deliveryId' | 'webhookId' | 'sourceName' | 'keyName' | 'environment'> & {
  claims: number | undefined
}

/** Returns the landing of a delivery: the report that it carries, and who signed it. */
export function landingOfDelivery(
  { keys, mediaHosts }: RowSettings,
  { deliveryId, claims, webhookId, sourceName, keyName, environment }: Identified,
  report: Report,
): Landing {
  // The stored environment. The current keys decide for rows of releases that did not store it.
  const signed = environment ?? signedEnvironment(keys(), keyName)
  return landingOfReport(report, {
    fetched: false,
    sourceName,
    keyName,
    environment: signed === 'unknown' ? undefined : signed,
    delivery: { id: deliveryId, claims, ...deliveryIdRange(webhookId) },
    mediaHosts,
  })
}

/** Returns the way by which a landing came, as the column `source` and the metrics name it. */
export function wayOf({ fetched }: Pick<Landing, 'fetched'>): 'webhook' | 'reconciler' {
  return fetched ? 'reconciler' : 'webhook'
}

/** Returns the landing of a report. The source's own result overrules a webhook. */
export function landingOfReport({ jobId, isInline, files: _files, ...report }: Report, origin: Origin): Landing {
  const { fetched, sourceName, keyName, environment, delivery } = origin
  return {
    ...requestIdOf(sourceName, jobId),
    sourceName,
    ...report,
    output: isItemAlone(report) ? undefined : report.output,
    model: report.model === undefined ? undefined : cutTo(report.model, maxNameCharacters),
    error: report.error && bounded(report.error),
    createdAt: storable(report.createdAt),
    completedAt: storable(report.completedAt),
    fetched,
    keyName,
    environment,
    // Links of inline media are ours.
    flags: isInline ? [] : flagsOf(report.media, origin),
    delivery,
  }
}

function isItemAlone({ media: [item, ...others], output }: Pick<Report, 'media' | 'output'>): boolean {
  return item !== undefined && others.length === 0 && isDeepStrictEqual(output, outputOfItem(item))
}

/** Cuts the texts of an error to the lengths of their columns, so that its result lands. Sources do not bound them. */
function bounded({ code, message }: NonNullable<Landing['error']>): Landing['error'] {
  return { code: cutTo(code, maxNameCharacters), message: cutTo(message, maxErrorMessageCharacters) }
}

/** Omits a time outside the years 1000 to 9998, which the columns refuse, so that the result lands. */
function storable(time: string | undefined): string | undefined {
  return time !== undefined && isTime(time) ? time : undefined
}

function flagsOf(media: readonly MediaItem[], { mediaHosts }: Origin): string[] {
  if (mediaHosts === undefined) return []
  const links = media.flatMap(({ url, original_url }) => (original_url === undefined ? [url] : [url, original_url]))
  return links.every((link) => mediaHosts.includes(hostOf(link))) ? [] : ['foreign_host']
}

function hostOf(link: string): string {
  return URL.canParse(link) ? new URL(link).host : ''
}

/** The memory of an item or a row besides its texts and its body. */
export const rowBytes = 512

/** Estimates the size of a landing as JSON. An output that is stored repeats the links of its media. */
export function estimateBytes({ error, media, model, output }: Landing): number {
  const links = media.reduce(
    (sum, { url, original_url }) => sum + url.length + (original_url?.length ?? 0) + rowBytes,
    0,
  )
  return rowBytes + links + (JSON.stringify(output)?.length ?? 0) + (error?.message.length ?? 0) + (model?.length ?? 0)
}
