import { isDeepStrictEqual } from 'node:util'
import { deliveryIdRange } from '../domain/delivery.ts'
import type { Environment } from '../domain/environment.ts'
import { cutTo, isTime, maxErrorMessageCharacters, maxNameCharacters } from '../domain/limits.ts'
import { outputOfItem, type MediaItem, type Report } from '../domain/report.ts'
import { requestIdOf } from '../domain/request-id.ts'
import type { Claimed } from './claimed.ts'

/**
 * How a result came: by a delivery with a claim of this process, by a single replay of one (without a claim), or by a
 * poll. A poll carries the provider's own result, which overrules a webhook.
 */
export type Via = 'delivery' | 'replay' | 'poll'

/** Where a report comes from, and which delivery leaves the inbox when it lands. */
export type Origin = {
  via: Via
  /** The source whose report it is: see storedName(). */
  source_name: string | null
  /** The key that signed the webhook, or that the poll called with. */
  reporting_key: string
  environment: Environment | undefined
  /** The delivery that carried it. It leaves the inbox, after a claim only if that is still held. */
  delivery_id?: string
  claims?: number | undefined
  /** The bounds of the delivery ids of its webhook id. */
  webhook_first_id?: string
  webhook_last_id?: string
}

/** A report with its origin: a row of `judged` in the landing statements. It lands in the row of its request. */
export type ReportToLand = Origin & {
  request_id: string
  external_id: string | null
  status: Report['status']
  model: string | undefined
  /** Undefined also for an output that consists of one item alone. */
  output: unknown
  media: readonly MediaItem[]
  media_complete: boolean
  cost: number | undefined
  error_code: string | undefined
  error_message: string | undefined
  created_at: string | undefined
  completed_at: string | undefined
  flags: readonly string[]
}

/** MEDIA_HOSTS: the hosts that links may lead to; undefined for any. */
export type MediaHosts = readonly string[] | undefined

/** A stored delivery. `claims` is undefined for a replay, which claims nothing. */
export type StoredDelivery = Pick<Claimed, 'deliveryId' | 'webhookId' | 'sourceName' | 'keyName' | 'environment'> & {
  claims: number | undefined
}

/** Returns the report that a delivery carries, with its origin. */
export function deliveredReport(
  { deliveryId, claims, webhookId, sourceName, keyName, environment }: StoredDelivery,
  report: Report,
  mediaHosts: MediaHosts,
): ReportToLand {
  const { first, last } = deliveryIdRange(webhookId)
  const origin = {
    via: claims === undefined ? 'replay' : 'delivery',
    source_name: sourceName,
    reporting_key: keyName,
    environment,
    delivery_id: deliveryId,
    claims,
    webhook_first_id: first,
    webhook_last_id: last,
  } as const
  return reportToLand(report, origin, mediaHosts)
}

/** Adds the origin to a report. Texts are cut to the lengths of their columns, since sources do not bound them. */
export function reportToLand(report: Report, origin: Origin, mediaHosts: MediaHosts): ReportToLand {
  const { status, model, media, mediaComplete, cost, error } = report
  const { requestId, externalId } = requestIdOf(origin.source_name, report.jobId)
  return {
    ...origin,
    request_id: requestId,
    external_id: externalId,
    status,
    model: model === undefined ? undefined : cutTo(model, maxNameCharacters),
    output: isItemAlone(report) ? undefined : report.output,
    media,
    media_complete: mediaComplete,
    cost,
    error_code: error && cutTo(error.code, maxNameCharacters),
    error_message: error && cutTo(error.message, maxErrorMessageCharacters),
    created_at: storable(report.createdAt),
    completed_at: storable(report.completedAt),
    // Links of inline media are ours.
    flags: report.isInline || areHostsOf(mediaHosts, media) ? [] : ['foreign_host'],
  }
}

function isItemAlone({ media: [item, ...others], output }: Pick<Report, 'media' | 'output'>): boolean {
  return item !== undefined && others.length === 0 && isDeepStrictEqual(output, outputOfItem(item))
}

/** Omits a time outside the years 1000 to 9998, which the columns refuse, so that the result lands. */
function storable(time: string | undefined): string | undefined {
  return time !== undefined && isTime(time) ? time : undefined
}

function areHostsOf(hosts: MediaHosts, media: readonly MediaItem[]): boolean {
  if (hosts === undefined) return true
  const links = media.flatMap(({ url, original_url }) => (original_url === undefined ? [url] : [url, original_url]))
  return links.every((link) => hosts.includes(URL.parse(link)?.host ?? ''))
}

/** The memory of an item or a row besides its texts and its body. */
export const rowBytes = 512

/** Estimates the size of a report as JSON. An output that is stored repeats the links of its media. */
export function estimateBytes({ error_message: message, media, model, output }: ReportToLand): number {
  const links = media.reduce(
    (sum, { url, original_url }) => sum + url.length + (original_url?.length ?? 0) + rowBytes,
    0,
  )
  return rowBytes + links + (JSON.stringify(output)?.length ?? 0) + (message?.length ?? 0) + (model?.length ?? 0)
}
