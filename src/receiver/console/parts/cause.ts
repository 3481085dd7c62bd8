import { html } from 'hono/html'
import { type Markup, facts, type Fact, time } from '../../../platform/pages/parts.ts'
import { todoOf, wordsOf, type KeysPlace } from '../../on-call/cause-words.ts'
import { landingExtent } from '../../on-call/problems.ts'
import type { Cause } from '../../queries/causes.ts'
import { card, foreign, number } from './parts.ts'

type Known = { causes: readonly Cause[]; keys: KeysPlace; more?: Markup; moreFacts?: readonly (Fact | false)[] }

/** The card of one cause: its meaning, what to do, and its size. */
export function causeCard(reason: string, { causes, keys, more, moreFacts = [] }: Known): Markup {
  const cause = causes.find((one) => one.reason === reason)
  const size = cause && [
    ['Count', number(cause.count)] as const,
    ['First seen', time(cause.first_seen)] as const,
    ['Last seen', time(cause.last_seen)] as const,
    ...moreFacts,
  ]
  const body = html`${causeText(reason, keys, cause?.errors)}${more ?? ''} ${size && facts(size)}`
  return card('Meaning and what to do', body, { id: 'about' })
}

/** How many arrivals or deliveries the causes count. */
export function sumOf(causes: readonly Cause[]): number {
  return causes.reduce((sum, { count }) => sum + count, 0)
}

/** The meaning of a cause, and the next step. */
export function causeText(reason: string, keys: KeysPlace, errors: Cause['errors'] = []): Markup {
  return html`<p>${wordsOf(reason).means}</p>${errorList(errors)}<p><b>What to do:</b> ${todoOf(reason, keys)}</p>`
}

/** The errors of Postgres, newest first: one line for each message and model, with the number of deliveries. */
function errorList(errors: NonNullable<Cause['errors']>): Markup | '' {
  if (errors.length === 0) return ''
  return html`<p><b>Errors of Postgres:</b></p>
    <ul>${errors.map((error) => {
      const { message, model, count: many } = error
      return html`<li>${foreign(message, 500)}<div class="soft">${number(many)}×${model === null ? '' : html` ${foreign(model, 60)}`}. ${landingExtent(error)}</div></li>`
    })}</ul>`
}
