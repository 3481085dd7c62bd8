import type { RefusalCause } from '../../wire/signature.ts'
import type { ParkReason } from '../domain/report.ts'
import type { ReceiverSettings } from '../settings.ts'
import texts from './cause-words.json' with { type: 'json' }

/** `clause` is the cause as a part of a sentence: `no secret matches`. */
export type CauseWords = { title: string; means: string; todo: string; clause: string }

export type CausePlace = 'quarantine' | 'parked'

type Text = Pick<CauseWords, 'title' | 'means'> & Partial<CauseWords>

const refused: Record<RefusalCause | 'missing_header' | 'invalid_webhook_id', Text> = texts.refused
const parked: Record<ParkReason, Text> = texts.parked
/** The causes for which nothing of an arrival is kept. The provider sends such a webhook again. */
const notKept: Record<string, Text> = texts.not_kept

export const parkReasons = Object.keys(parked)
export const refusalReasons = [...Object.keys(refused), ...Object.keys(notKept)]

/** The words of each known cause. */
export const causeWords: ReadonlyMap<string, CauseWords> = new Map([
  ...wordsIn(refused, ''),
  ...wordsIn(parked, texts.todo.parked),
  ...wordsIn(notKept, texts.todo.not_kept),
])

/** Adds `todo` to causes without one of their own, and the title as their clause. */
function wordsIn(causes: Readonly<Record<string, Text>>, todo: string): [string, CauseWords][] {
  return Object.entries(causes).map(([reason, text]) => {
    const clause = text.title.slice(0, 1).toLowerCase() + text.title.slice(1)
    return [reason, { todo, clause, ...text }]
  })
}

export function wordsOf(reason: string): CauseWords {
  return (
    causeWords.get(reason) ?? {
      title: reason,
      means: 'This version does not know this cause.',
      todo: 'Open one of them: its attempts have the details.',
      clause: reason,
    }
  )
}

export type KeysPlace = Pick<ReceiverSettings, 'keysFile' | 'demoKeysFile' | 'sourcesFile' | 'hasDefaultSource'>

/** How to change the keys of this process. */
export function reloadKeys({ keysFile, demoKeysFile, sourcesFile, hasDefaultSource }: KeysPlace): string {
  const reload = 'change it and send the receiver SIGHUP. No restart is needed.'
  const other = `come from the file ${sourcesFile}: ${reload}`
  if (!hasDefaultSource) return `Keys ${other}`
  const own =
    demoKeysFile !== undefined
      ? `These are the demo keys of ${demoKeysFile}. For others, set GENERATION_KEYS_FILE and restart the receiver.`
      : keysFile === undefined
        ? 'Keys come from GENERATION_KEYS: change it and restart the receiver.'
        : `Keys come from the file ${keysFile}: ${reload}`
  return sourcesFile === undefined ? own : `${own} Keys of other sources ${other}`
}

/** The next step for a cause, with the place of the keys of this process. */
export function todoOf(reason: string, keys: KeysPlace): string {
  const { todo } = wordsOf(reason)
  return reason === 'no_matching_secret' ? `${todo} ${reloadKeys(keys)}` : todo
}

/** The cause as a part of a sentence. An unknown cause is its code in words. */
export function causeClause(reason: string): string {
  return wordsOf(reason).clause.replaceAll('_', ' ')
}

/** The place of a cause, for links that name only the cause. */
export function placeOf(reason: string): CausePlace {
  return parkReasons.includes(reason) ? 'parked' : 'quarantine'
}
