import { html } from 'hono/html'
import type { Markup } from '../../platform/pages/parts.ts'
import type { InputDescriptor, Model } from '../../wire/schemas.ts'

/** A form from a model's input_schema, and its fields as the input of a submit. */

/** The text of each field, by its key. */
export type FieldTexts = Record<string, string>

const prefix = 'input.'
/** The longest text of a field of one line: a URL. Longer texts, such as prompts, get several lines. */
const lineCharacters = 2048

/** The texts of the fields for an input. */
export function textsOf(input: Record<string, unknown>): FieldTexts {
  return Object.fromEntries(
    Object.entries(input).map(([key, value]) => [key, Array.isArray(value) ? value.join('\n') : String(value)]),
  )
}

/** The fields of this model that the form sent. A browser does not send an unchecked checkbox. */
export function textsIn({ input_schema: schema }: Model, fields: Record<string, string>): FieldTexts {
  const keys = Object.keys(schema).filter((key) => Object.hasOwn(fields, prefix + key))
  // Browsers send CRLF line ends, which the API would keep.
  return Object.fromEntries(keys.map((key) => [key, (fields[prefix + key] ?? '').replaceAll('\r\n', '\n')]))
}

/** The input from the texts. An empty field is left out, so that the model's default applies. */
export function inputOf({ input_schema: schema }: Model, texts: FieldTexts): Record<string, unknown> {
  const given = Object.entries(schema).flatMap(([key, descriptor]) => {
    const value = valueOf(descriptor, texts[key] ?? '')
    return value === undefined ? [] : [[key, value] as const]
  })
  return Object.fromEntries(given)
}

function valueOf({ type, items, default: unset }: InputDescriptor, text: string): unknown {
  if (type === 'boolean') return text === 'true' ? true : unset === true ? false : undefined
  if (text === '') return undefined
  switch (type) {
    case 'string':
      return text
    case 'number':
      return numberOf(text)
    case 'array': {
      const lines = text.split('\n').filter((line) => line.trim() !== '')
      if (lines.length === 0) return undefined
      return items?.type === 'number' ? lines.map(numberOf) : lines
    }
    default:
      return type satisfies never
  }
}

/** A text that is not a number is kept, so that the API's own check refuses it. */
function numberOf(text: string): number | string {
  const number = Number(text)
  return text.trim() === '' || Number.isNaN(number) ? text : number
}

export function inputFields({ input_schema: schema }: Model, texts: FieldTexts): Markup[] {
  return Object.entries(schema).map(([key, descriptor]) => field(key, descriptor, texts[key] ?? ''))
}

function field(key: string, descriptor: InputDescriptor, text: string): Markup {
  const name = prefix + key
  const hint = hintOf(descriptor)
  const attributes = html`id="${name}" name="${name}" ${hint === '' ? '' : html`aria-describedby="${name}-hint"`}`
  const words = hint === '' ? '' : html`<p class="hint" id="${name}-hint">${hint}</p>`
  if (descriptor.type === 'boolean')
    return html`<div class="field"><label class="tick"><input type="checkbox" value="true" ${attributes} ${text === 'true' ? html`checked` : ''} /> ${key}</label>${words}</div>`
  const label = html`<label for="${name}">${key} ${descriptor.required ? html`<span class="needed">required</span>` : ''}</label>`
  return html`<div class="field">${label}${control(descriptor, attributes, text)}${words}</div>`
}

function control(descriptor: InputDescriptor, attributes: Markup, text: string): Markup {
  const { type, required, enum: choices, min, max, max_length: maxLength = Infinity } = descriptor
  const needed = required ? html`required` : ''
  if (choices !== undefined) {
    const isKnown = text === '' || choices.some((choice) => String(choice) === text)
    return html`<select ${attributes} ${needed}>
      ${descriptor.default === undefined ? html`<option value="">not set</option>` : ''}
      ${isKnown ? '' : html`<option selected>${text}</option>`}
      ${choices.map((choice) => html`<option ${String(choice) === text ? html`selected` : ''}>${choice}</option>`)}
    </select>`
  }
  if (type === 'number')
    return html`<input type="number" step="any" ${attributes} ${needed} ${min === undefined ? '' : html`min="${min}"`} ${max === undefined ? '' : html`max="${max}"`} value="${text}" />`
  // HTML drops one line end after the tag, so this one protects a line end at the start of the text.
  if (type === 'array' || maxLength > lineCharacters)
    return html`<textarea rows="${type === 'array' ? 2 : 4}" ${attributes} ${needed}>\n${text}</textarea>`
  return html`<input ${attributes} ${needed} value="${text}" />`
}

function hintOf(descriptor: InputDescriptor): string {
  const { type, description, enum: choices, min, max, max_length: maxLength, max_items: maxItems } = descriptor
  const bounds = [
    type === 'array' ? `One per line${maxItems === undefined ? '' : `, at most ${maxItems}`}.` : '',
    choices === undefined && min !== undefined && max !== undefined ? `From ${min} to ${max}.` : '',
    choices === undefined && maxLength !== undefined && maxLength !== lineCharacters
      ? `At most ${maxLength} characters.`
      : '',
  ]
  return [description ?? '', ...bounds].filter((part) => part !== '').join(' ')
}
