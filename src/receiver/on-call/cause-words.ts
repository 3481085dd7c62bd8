import type { RefusalCause } from '../../wire/signature.ts'
import type { ParkReason } from '../domain/report.ts'
import texts from './cause-words.json' with { type: 'json' }

export type CauseWords = {
  title: string
  means: string
  todo: string
}

export type CausePlace = 'quarantine' | 'parked'

type Refused = CauseWords & { clause: string }
type Parked = Omit<CauseWords, 'todo'> & { todo?: string }

const refused: Record<RefusalCause | 'missing_header' | 'invalid_webhook_id', Refused> = texts.refused
const parkedTexts: Record<ParkReason, Parked> = texts.parked
const parked: Readonly<Record<string, CauseWords>> = withTodo(parkedTexts, texts.todo.parked)
/** The causes for which nothing of an arrival is kept. The provider sends such a webhook again. */
const notKept: Readonly<Record<string, Refused>> = withTodo(texts.not_kept, texts.todo.not_kept)

/** Adds `todo` to causes without one of their own. */
function withTodo<T extends object>(causes: Readonly<Record<string, T>>, todo: string) {
  return Object.fromEntries(Object.entries(causes).map(([reason, words]) => [reason, { todo, ...words }]))
}

const words: Record<CausePlace, Readonly<Record<string, CauseWords>>> = { quarantine: refused, parked }

export function wordsOf(place: CausePlace, reason: string): CauseWords {
  if (Object.hasOwn(words[place], reason) && words[place][reason]) return words[place][reason]
  if (Object.hasOwn(notKept, reason) && notKept[reason]) return notKept[reason]
  return {
    title: reason,
    means: 'This version does not know this cause.',
    todo: 'Open one of them: its attempts have the details.',
  }
}

export type KeysPlace = { keysFile: string | undefined; sourcesFile?: string | undefined }

/** How to change the keys of this process. */
export function reloadKeys({ keysFile, sourcesFile }: KeysPlace): string {
  const own =
    keysFile === undefined
      ? 'Keys come from GENERATION_KEYS: change it and restart the receiver.'
      : `Keys come from the file ${keysFile}: change it and send the receiver SIGHUP. No restart is needed.`
  return sourcesFile === undefined
    ? own
    : `${own} Keys of further sources come from the file ${sourcesFile}, which SIGHUP reads again too.`
}

/** The next step for a cause, with the place of the keys of this process. */
export function todoOf(place: CausePlace, reason: string, keys: KeysPlace): string {
  const { todo } = wordsOf(place, reason)
  return place === 'quarantine' && reason === 'no_matching_secret' ? `${todo} ${reloadKeys(keys)}` : todo
}

/** A cause as a part of a sentence: `no secret matches`. */
export function causeClause(reason: string): string {
  if (Object.hasOwn(parked, reason)) return parkedClause(reason)
  const clauses: Readonly<Record<string, { clause: string }>> = { ...refused, ...notKept }
  return Object.hasOwn(clauses, reason) ? (clauses[reason]?.clause ?? reason) : reason
}

/** The title within a sentence: its first letter is small. */
function parkedClause(reason: string): string {
  const { title } = wordsOf('parked', reason)
  return title.slice(0, 1).toLowerCase() + title.slice(1)
}

/** The words of a cause of any place; undefined for an unknown cause. */
export function causeWords(reason: string): CauseWords | undefined {
  const all: Readonly<Record<string, CauseWords>> = { ...refused, ...parked, ...notKept }
  return Object.hasOwn(all, reason) ? all[reason] : undefined
}

/** The causes of arrivals of which nothing was kept. */
export function causesNotKept(): string[] {
  return Object.keys(notKept)
}

export function causesOf(place: CausePlace): string[] {
  return Object.keys(words[place])
}

/** The place of a cause, for links that name only the cause. */
export function placeOf(reason: string): CausePlace {
  return Object.hasOwn(parked, reason) ? 'parked' : 'quarantine'
}
