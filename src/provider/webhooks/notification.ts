import { randomUUID } from 'node:crypto'
import type { Notification, Output } from '../../wire/schemas.ts'
import { type Faults, strikes } from '../domain/faults.ts'
import { falWebhookOf, predictionOf, shapeOf } from './shapes.ts'

/** The end of a generation. CANCELED has no webhook (decisions, CANCELED). */
export type Ending =
  | { kind: 'completed'; output: Output }
  | { kind: 'failed'; error: { code: string; message: string } }
  | { kind: 'canceled' }

/** A row for the outbox. */
export type NewDelivery = { id: string; url: string; host: string; body: string; dropped: boolean; lateSeconds: number }

export type Notified = {
  requestId: string
  model: string
  cost: string
  webhook_url: string | null
  faults: Faults | null
}

/**
 * Creates the notification of an ended request (spec, Events), with the bytes of every attempt. Undefined if the
 * request has no webhook or was canceled. It is due at the dispatcher's next tick, unless a fault of the key delays it.
 */
export function notificationOf(request: Notified, ending: Ending, random: () => number): NewDelivery | undefined {
  if (request.webhook_url === null) return undefined
  const notification = bodyOf(request, request.webhook_url, ending)
  if (notification === undefined) return undefined
  return {
    id: randomUUID(),
    url: request.webhook_url,
    host: new URL(request.webhook_url).host,
    body: JSON.stringify(notification),
    dropped: strikes(request.faults?.drop, random),
    lateSeconds: request.faults?.late_seconds ?? 0,
  }
}

/** The notification in the shape in which the request was submitted. */
function bodyOf({ requestId, model, cost }: Notified, webhookUrl: string, ending: Ending): object | undefined {
  if (ending.kind === 'canceled') return undefined
  const shape = shapeOf(webhookUrl)
  if (shape === undefined) {
    const notification: Notification =
      ending.kind === 'failed'
        ? { request_id: requestId, status: 'ERROR', error: ending.error }
        : {
            request_id: requestId,
            status: 'OK',
            payload: { model, output: linksOf(ending.output), cost: Number(cost) },
          }
    return notification
  }
  const status = ending.kind === 'completed' ? ('COMPLETED' as const) : ('FAILED' as const)
  const job = { request_id: requestId, model, ...ending, status }
  return shape === 'fal' ? falWebhookOf(job) : predictionOf(job)
}

/** Keeps only links, and only the first of several images (spec, Events, Body on success). */
function linksOf(output: Output) {
  if ('images' in output) return { images: output.images.slice(0, 1).map(({ url }) => ({ url })) }
  if ('video' in output) return { video: { url: output.video.url } }
  return { audio: { url: output.audio.url } }
}
