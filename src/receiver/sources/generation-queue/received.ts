import { z } from 'zod'
import * as wire from '../../../wire/schemas.ts'
import type { MediaItem } from '../../domain/report.ts'
import { isStorable } from '../../domain/storable.ts'
import { pixels } from '../media.ts'

// The answers that the receiver accepts from a provider. Members that the spec shows are checked. Where the spec shows
// no shape (audio in a result, the content of logs, further members), every plausible one lands, with its whole output.

type FoundItem = { url: string; original_url?: unknown; width?: unknown; height?: unknown; duration?: unknown }
/** An output stands at most this deep in a result or a notification. */
const outputLevels = 4

const listOf = <T extends z.ZodType>(item: T) => z.array(item).min(1).max(wire.maxOutputItems)
const link = z.looseObject({ url: wire.urlSchema })
const anyAudio = z.union([wire.urlSchema.transform((url) => ({ url })), link])
const audios = z.union([anyAudio, listOf(anyAudio)])

const notified = z.union([
  z.looseObject({ images: listOf(link) }).transform((whole) => kept('image', whole.images, whole)),
  z.looseObject({ video: link }).transform((whole) => kept('video', [whole.video], whole)),
  z.looseObject({ audio: link }).transform((whole) => kept('audio', [whole.audio], whole)),
])
const output = z.union([
  z.looseObject({ images: listOf(wire.imageSchema.loose()) }).transform((whole) => kept('image', whole.images, whole)),
  z.looseObject({ video: wire.videoSchema.loose() }).transform((whole) => kept('video', [whole.video], whole)),
  z.looseObject({ audio: audios }).transform((whole) => kept('audio', [whole.audio].flat(), whole)),
])

export const receivedNotificationSchema = wire.notificationWith(notified)
export type ReceivedNotification = z.infer<typeof receivedNotificationSchema>
export const receivedResultSchema = wire.resultWith(output)
export type ReceivedResult = z.infer<typeof receivedResultSchema>
/** A running request. Its logs are not read, so they may have any shape. */
export const receivedStatusSchema = wire.statusBodySchema.omit({ logs: true })

type Received = { media: MediaItem[]; whole: object }

/** An output with its media. `whole` is what `results` keeps, without further members that Postgres does not store. */
function kept(kind: MediaItem['kind'], found: FoundItem[], whole: object): Received {
  const items = found.map(readItem)
  const media = items.map(({ duration, ...item }, position) => ({
    kind,
    position,
    ...item,
    duration_seconds: secondsOf(duration),
  }))
  if (isStorable(whole, outputLevels)) return { media, whole }
  return { media, whole: kind === 'image' ? { images: items } : { [kind]: items[0] } }
}

/** Reads an item, whose further members may have any type. A value that its column would refuse is omitted. */
function readItem({ url, original_url, width, height, duration }: FoundItem) {
  const original = wire.urlSchema.safeParse(original_url).data
  return {
    url,
    original_url: isStorable(original) ? original : undefined,
    width: pixels.parse(width),
    height: pixels.parse(height),
    duration: isStorable(duration) ? duration : undefined,
  }
}

/** Reads seconds from a number or its text. Returns undefined for other values. */
function secondsOf(duration: unknown): number | undefined {
  const seconds = typeof duration === 'string' && duration !== '' ? Number(duration) : duration
  return typeof seconds === 'number' && Number.isFinite(seconds) && seconds >= 0 ? seconds : undefined
}
