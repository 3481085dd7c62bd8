import type { Notification, Output, Result } from '../../wire/schemas.ts'
import { jitteredPauseMs } from '../../wire/backoff.ts'
import type { Landing, MediaItem } from './fan-out.ts'
import type { Environment } from '../domain/keys.ts'

/** What a landing needs besides what was said: where it came from and when. */
export type Origin = {
  source: 'webhook' | 'reconciler'
  keyName: string
  environment: Environment | undefined
  delivery: Landing['delivery']
  mediaHosts: readonly string[] | undefined
  now: Date
}

const completionPause = { baseMs: 15_000, capMs: 3_600_000 }

/** A webhook's own word: all there is to an ERROR and to audio, the first link of a picture or video. */
export function landNotification(notification: Notification, origin: Origin): Landing {
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
      error: notification.error,
      nextPollAt: undefined,
      flags: [],
    }
  }
  const { model, output, cost } = notification.payload
  const media = mediaOf(output)
  const told = 'audio' in output
  return {
    ...common,
    status: 'COMPLETED',
    model,
    output,
    media,
    mediaComplete: told,
    cost,
    error: undefined,
    // Audio is told in full; only the provider's times are still worth a call.
    nextPollAt: told ? origin.now : new Date(origin.now.getTime() + jitteredPauseMs(1, completionPause, Math.random)),
    flags: flagsOf(media, origin),
  }
}

/** The provider's own result (spec, Endpoints: result), which overrules what a webhook said. */
export function landResult(result: Result, origin: Origin): Landing {
  const media = result.status === 'COMPLETED' ? mediaOf(result.output) : []
  return {
    requestId: result.request_id,
    status: result.status,
    model: result.model,
    output: result.status === 'COMPLETED' ? result.output : undefined,
    media,
    mediaComplete: true,
    // Whoever cancels pays nothing, and the result need not say so.
    cost: result.status === 'CANCELED' ? (result.cost ?? 0) : result.cost,
    error: result.status === 'FAILED' ? result.error : undefined,
    createdAt: result.created_at,
    completedAt: result.completed_at,
    source: origin.source,
    confirmed: true,
    keyName: origin.keyName,
    environment: origin.environment,
    nextPollAt: undefined,
    flags: flagsOf(media, origin),
    delivery: origin.delivery,
  }
}

/** A video as a webhook tells it, or whole. */
type AnyOutput = Output | Extract<Notification, { status: 'OK' }>['payload']['output']

/** One item per output; positions count from 0 within a kind. */
export function mediaOf(output: AnyOutput): MediaItem[] {
  if ('images' in output) {
    return output.images.map((image, position) => ({ kind: 'image', position, ...sized(image) }))
  }
  if ('video' in output) return [{ kind: 'video', position: 0, ...sized(output.video) }]
  return [{ kind: 'audio', position: 0, ...sized(output.audio) }]
}

type AnyMedia = { url: string; original_url?: string | undefined; width?: number; height?: number; duration?: number | undefined }

function sized({ url, original_url, width, height, duration }: AnyMedia) {
  return { url, original_url, width, height, duration_seconds: duration }
}

function flagsOf(media: readonly MediaItem[], { mediaHosts }: Origin): string[] {
  if (mediaHosts === undefined) return []
  const links = media.flatMap(({ url, original_url }) => (original_url === undefined ? [url] : [url, original_url]))
  return links.every((link) => mediaHosts.includes(hostOf(link))) ? [] : ['foreign_host']
}

function hostOf(link: string): string {
  return URL.canParse(link) ? new URL(link).host : ''
}

/** A landing as the statement of fan-out.ts takes it: the names of the columns, and nothing nested but JSON. */
export function toItem({ delivery, error, environment, ...landing }: Landing) {
  return {
    request_id: landing.requestId,
    status: landing.status,
    model: landing.model,
    output: landing.output,
    media: landing.media,
    media_complete: landing.mediaComplete,
    cost: landing.cost,
    error_code: error?.code,
    error_message: error?.message,
    created_at: landing.createdAt,
    completed_at: landing.completedAt,
    source: landing.source,
    confirmed: landing.confirmed,
    key_name: landing.keyName,
    sandbox: environment === undefined ? undefined : environment === 'sandbox',
    next_poll_at: landing.nextPollAt?.toISOString(),
    flags: landing.flags,
    delivery_id: delivery?.id,
    claims: delivery?.claims,
    first_id: delivery?.first,
    last_id: delivery?.last,
  }
}
