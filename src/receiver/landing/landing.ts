import { deliveryIdRange } from '../domain/delivery.ts'
import { signedEnvironment, type Environment, type Keys, type SignedEnvironment } from '../domain/keys.ts'
import { cutTo, isTime, maxErrorMessageCharacters, maxNameCharacters } from '../domain/limits.ts'
import type { ReceivedItem, ReceivedNotification, ReceivedResult } from '../domain/received.ts'

export type MediaItem = {
  kind: 'image' | 'video' | 'audio'
  position: number
  url: string
  original_url?: string | undefined
  width?: number | undefined
  height?: number | undefined
  duration_seconds?: number | undefined
}

/** A terminal state of one request: the row to write. */
export type Landing = {
  requestId: string
  status: 'COMPLETED' | 'FAILED' | 'CANCELED'
  model: string | undefined
  output: unknown
  media: readonly MediaItem[]
  /** False while only what the webhook carried is known. */
  mediaComplete: boolean
  cost: number | undefined
  error: { code: string; message: string } | undefined
  createdAt: string | undefined
  completedAt: string | undefined
  source: 'webhook' | 'reconciler'
  /** Whether the provider's own result says so. That overrules a webhook. */
  confirmed: boolean
  keyName: string
  environment: Environment | undefined
  flags: readonly string[]
  /**
   * The delivery that carried it. The landing statement settles it if the claim still holds; a replay has no claim.
   * `first` and `last` bound the ids of its webhook id.
   */
  delivery: { id: string; claims: number | undefined; first: string; last: string } | undefined
}

/** Where a webhook or a result came from. */
export type Origin = {
  source: 'webhook' | 'reconciler'
  keyName: string
  environment: Environment | undefined
  delivery: Landing['delivery']
  mediaHosts: readonly string[] | undefined
}

/** The keys and settings that a landing depends on. */
export type LandingDeps = { keys: () => Keys; mediaHosts: readonly string[] | undefined }

/** A stored delivery. A replay claims nothing, and so its `claims` are undefined. */
export type Identified = {
  deliveryId: string
  claims: number | undefined
  webhookId: string
  keyName: string
  environment: SignedEnvironment | undefined
}

/** Returns the landing of a delivery: the notification that it carries, and who signed it. */
export function landingOfDelivery(
  { keys, mediaHosts }: LandingDeps,
  { deliveryId, claims, webhookId, keyName, environment }: Identified,
  notification: ReceivedNotification,
): Landing {
  // As stored with the delivery. A row of a release that did not store it is judged by today's keys.
  const signed = environment ?? signedEnvironment(keys(), keyName)
  return landingOfNotification(notification, {
    source: 'webhook',
    keyName,
    environment: signed === 'unknown' ? undefined : signed,
    delivery: { id: deliveryId, claims, ...deliveryIdRange(webhookId) },
    mediaHosts,
  })
}

/**
 * Returns the landing of a notification (spec, Events). An ERROR is complete. An OK carries the first link of images,
 * and of video and audio no sizes, times or lengths: its next poll, which completes it, is due now.
 */
export function landingOfNotification(notification: ReceivedNotification, origin: Origin): Landing {
  const common = {
    requestId: notification.request_id,
    createdAt: undefined,
    completedAt: undefined,
    source: origin.source,
    confirmed: false,
    keyName: origin.keyName,
    environment: origin.environment,
    delivery: origin.delivery,
  }
  if (notification.status === 'ERROR') {
    return {
      ...common,
      status: 'FAILED',
      model: undefined,
      output: undefined,
      media: [],
      mediaComplete: true,
      cost: 0,
      error: bounded(notification.error),
      flags: [],
    }
  }
  const { model, output, cost } = notification.payload
  const media = mediaOf(output)
  return {
    ...common,
    status: 'COMPLETED',
    model: cutTo(model, maxNameCharacters),
    output: output.whole,
    media,
    mediaComplete: false,
    cost,
    error: undefined,
    flags: flagsOf(media, origin),
  }
}

/** The provider's own result (spec, Endpoints: result), which overrules a webhook's. */
export function landingOfResult(result: ReceivedResult, origin: Origin): Landing {
  const media = result.status === 'COMPLETED' ? mediaOf(result.output) : []
  return {
    requestId: result.request_id,
    status: result.status,
    model: result.model === undefined ? undefined : cutTo(result.model, maxNameCharacters),
    output: result.status === 'COMPLETED' ? result.output.whole : undefined,
    media,
    mediaComplete: true,
    // A cancelled request costs nothing, and its result may leave the cost out.
    cost: result.status === 'CANCELED' ? (result.cost ?? 0) : result.cost,
    error: result.status === 'FAILED' ? bounded(result.error) : undefined,
    createdAt: storable(result.created_at),
    completedAt: storable(result.completed_at),
    source: origin.source,
    confirmed: true,
    keyName: origin.keyName,
    environment: origin.environment,
    flags: flagsOf(media, origin),
    delivery: origin.delivery,
  }
}

/** The spec does not bound the provider's texts, and the columns do. A longer text is cut, so that its result lands. */
function bounded({ code, message }: NonNullable<Landing['error']>): Landing['error'] {
  return { code: cutTo(code, maxNameCharacters), message: cutTo(message, maxErrorMessageCharacters) }
}

/** The columns refuse times outside the years 1000 to 9998. Such a time is left out, so that its result lands. */
function storable(time: string | undefined): string | undefined {
  return time !== undefined && isTime(time) ? time : undefined
}

/** One item per output; positions count from 0 within a kind. */
export function mediaOf({ kind, items }: { kind: MediaItem['kind']; items: readonly ReceivedItem[] }): MediaItem[] {
  return items.map(({ url, original_url, width, height, duration }, position) => ({
    kind,
    position,
    url,
    original_url,
    width,
    height,
    duration_seconds: secondsOf(duration),
  }))
}

/** Seconds as a number, or as the text of one; undefined for anything else. */
function secondsOf(duration: unknown): number | undefined {
  const seconds = typeof duration === 'string' && duration !== '' ? Number(duration) : duration
  return typeof seconds === 'number' && Number.isFinite(seconds) && seconds >= 0 ? seconds : undefined
}

function flagsOf(media: readonly MediaItem[], { mediaHosts }: Origin): string[] {
  if (mediaHosts === undefined) return []
  const links = media.flatMap(({ url, original_url }) => (original_url === undefined ? [url] : [url, original_url]))
  return links.every((link) => mediaHosts.includes(hostOf(link))) ? [] : ['foreign_host']
}

function hostOf(link: string): string {
  return URL.canParse(link) ? new URL(link).host : ''
}

/** Memory of an item or a row besides its texts. */
const rowBytes = 512

/** About what a landing weighs as JSON. Its output repeats the links of its media, and may have more members. */
export function bytesOf({ error, media, model, output }: Landing): number {
  const links = media.reduce(
    (sum, { url, original_url }) => sum + url.length + (original_url?.length ?? 0) + rowBytes,
    0,
  )
  return rowBytes + links + (JSON.stringify(output)?.length ?? 0) + (error?.message.length ?? 0) + (model?.length ?? 0)
}
