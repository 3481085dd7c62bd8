import type { FeedItem } from '../queries/feed.ts'
import type { ChangePostEnd } from './posting.ts'

export type Progress = { position: number; ahead: readonly number[] }

export type PageSending = {
  items: readonly FeedItem[]
  from: Progress
  probes: boolean
  mayBegin: () => boolean
  post: (item: FeedItem) => Promise<ChangePostEnd>
  /** Stores the progress, at most twice a second: after a crash, only later changes are posted again. */
  save: (progress: Progress) => Promise<void>
}

export type PageSent = Progress & {
  /** True if `save` has stored this progress already. */
  isSaved: boolean
  trouble?: string | undefined
}

/** Posts at a time per subscription, each of another request. */
const sideBySide = 8

/**
 * Posts a page of changes: changes of different requests side by side, those of one request in order. After a failure
 * no further post begins. The position moves over changes that were answered 2xx without a gap. Those beyond a gap are
 * kept in `ahead`, so that they are not posted again.
 */
export async function sendPage({ items, from, probes, mayBegin, post, save }: PageSending): Promise<PageSent> {
  const done = new Set(from.ahead)
  const waiting = items.filter(({ position }) => !done.has(position))
  const busy = new Set<string>()
  let trouble: string | undefined
  let fault: { error: unknown } | undefined
  let savedAt = performance.now()
  let isSaved = true
  let saving = false

  const progress = (): Progress => {
    let { position } = from
    for (const item of items) {
      if (!done.has(item.position)) break
      ;({ position } = item)
    }
    return { position, ahead: [...done].filter((one) => one > position) }
  }
  const saveNowAndThen = async () => {
    if (saving || performance.now() - savedAt < 500) return
    saving = true
    isSaved = true
    await save(progress())
    savedAt = performance.now()
    saving = false
  }
  const sendNext = async (): Promise<boolean> => {
    const at = waiting.findIndex((one) => !busy.has(subjectOf(one)))
    const [item] = at < 0 || trouble !== undefined || fault || !mayBegin() ? [] : waiting.splice(at, 1)
    if (item === undefined) return false
    busy.add(subjectOf(item))
    const end = await post(item)
    if (end.outcome === 'accepted') {
      done.add(item.position)
      isSaved = false
      await saveNowAndThen()
    } else if (end.outcome !== 'cut') trouble ??= end.trouble
    busy.delete(subjectOf(item))
    return end.outcome === 'accepted'
  }
  const sendOn = async () => {
    try {
      while (await sendNext());
    } catch (error) {
      fault ??= { error }
    }
  }

  if (!probes || (await sendNext())) await Promise.all(Array.from({ length: sideBySide }, sendOn))
  if (fault) throw fault.error
  return { ...progress(), isSaved, trouble }
}

/** Returns the id that all changes of one request or submit share. */
function subjectOf(item: FeedItem): string {
  return ('idempotency_key' in item ? item.idempotency_key : null) ?? item.request_id ?? ''
}
