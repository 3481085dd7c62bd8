import type { FrameSize } from './frame-size.ts'

export const framesPerSecond = 24
const crossfadeSeconds = 0.8

/** One picture of the clip, shown from `startSeconds` on. The next picture fades in over its end. */
export type Shot = { startSeconds: number; seconds: number; toTheLeft: boolean }

/** Cuts a clip into shots of about six seconds that overlap by a crossfade. */
export function planShots(durationSeconds: number): readonly Shot[] {
  const count = Math.min(Math.max(1, Math.round(durationSeconds / 6)), 5)
  const step = durationSeconds / count
  return Array.from({ length: count }, (_, index) => ({
    startSeconds: index * step,
    seconds: index === count - 1 ? step : step + crossfadeSeconds,
    toTheLeft: index % 2 === 1,
  }))
}

/** Layers are drawn wider than the frame, and pan within it. Even sides, as yuv420p needs. */
export function layerSize({ width, height }: FrameSize): FrameSize {
  return { width: 2 * Math.round((width * 1.2) / 2), height }
}

/**
 * The ffmpeg filter graph of a clip. Inputs are a far and a near layer for each
 * shot, then the caption; the output is `[clip]`. Only our own numbers are in it.
 */
export function videoGraph({ width, height }: FrameSize, durationSeconds: number, shots: readonly Shot[]): string {
  const graph = [`color=c=black:s=${width}x${height}:r=${framesPerSecond}:d=${durationSeconds},format=yuv420p[base0]`]
  for (const [index, shot] of shots.entries()) {
    const pan = (share: number) => panFilter({ width, height }, shot, share)
    const fade = index === 0 ? '' : `,format=yuva420p,fade=t=in:st=0:d=${crossfadeSeconds}:alpha=1`
    graph.push(
      `[${index * 2}:v]format=yuv420p,${hold(shot.seconds)},${pan(0.3)}[far${index}]`,
      `[${index * 2 + 1}:v]format=yuva420p,${hold(shot.seconds)},${pan(1)}[near${index}]`,
      `[far${index}][near${index}]overlay=format=yuv420${fade},setpts=PTS+${shot.startSeconds}/TB[shot${index}]`,
      `[base${index}][shot${index}]overlay=format=yuv420:eof_action=pass[base${index + 1}]`,
    )
  }
  graph.push(...captionFilters({ input: shots.length * 2, seconds: durationSeconds, over: `base${shots.length}` }))
  return graph.join(';')
}

/** Returns filters that fade the picture of `input` in over the stream labelled `over`. Their output is `[clip]`. */
export function captionFilters({ input, seconds, over }: { input: number; seconds: number; over: string }): string[] {
  return [
    `[${input}:v]format=yuva420p,${hold(seconds)},fade=t=in:st=0.2:d=0.8:alpha=1[caption]`,
    `[${over}][caption]overlay=format=yuv420,format=yuv420p[clip]`,
  ]
}

/**
 * One decoded picture, shown again for each frame: reading the file again would
 * cost more than encoding it. One frame more than needed, since a shot may
 * start between two frames of the clip, and the ground below it is black.
 */
function hold(seconds: number): string {
  const frames = Math.ceil(seconds * framesPerSecond) + 1
  return `loop=loop=${frames - 1}:size=1:start=0,setpts=N/${framesPerSecond}/TB`
}

/** Moves the frame across the layer, over `share` of the room there is, around its middle. */
function panFilter({ width, height }: FrameSize, { seconds, toTheLeft }: Shot, share: number): string {
  const along = toTheLeft ? `1-t/${seconds}` : `t/${seconds}`
  return `crop=${width}:${height}:x='(iw-ow)*(${(1 - share) / 2}+${share}*(${along}))':y=0:exact=1`
}
