import type { Request, Response } from 'express'
import de from './de.json' with { type: 'json' }
import en from './en.json' with { type: 'json' }
import es from './es.json' with { type: 'json' }
import fr from './fr.json' with { type: 'json' }
import ja from './ja.json' with { type: 'json' }
import pt from './pt.json' with { type: 'json' }

type MessageKey = keyof typeof en

/**
 * The messages of the API. en.json contains the texts exactly as the code writes them; a name in braces stands for a
 * value. The other languages have the same keys and names: add a new key to each file.
 */
export const messages = { en, de, fr, es, pt, ja } as const satisfies Record<string, Record<MessageKey, string>>
export type Language = keyof typeof messages

/** The languages of messages. The first is used if none matches. */
export const languages = ['en', 'de', 'fr', 'es', 'pt', 'ja'] as const satisfies readonly Language[]

const placeholder = /\{(\w+)\}/g

/**
 * Translates a message to the language that `Accept-Language` prefers (decisions, language of `message`), and names the
 * language in `Content-Language`. Returns a message that en.json lacks unchanged.
 */
export function localized(req: Request, res: Response, message: string): string {
  const language = languages.find((one) => one === req.acceptsLanguages(...languages)) ?? 'en'
  const translation = language === 'en' ? undefined : translate(message, language)
  res.vary('Accept-Language').set('Content-Language', translation === undefined ? 'en' : language)
  return translation ?? message
}

/**
 * Translates an English message. Returns undefined if en.json lacks it. Recognizes the message by its text, because a
 * FAILED request stores only its English message.
 */
export function translate(message: string, language: Language): string | undefined {
  for (const { key, pattern } of patterns) {
    const values = pattern.exec(message)
    if (values)
      return messages[language][key].replaceAll(placeholder, (_braces, name: string) => values.groups?.[name] ?? '')
  }
  return undefined
}

/** Patterns with the most fixed text come first, because `{field} is required` would also match a longer message. */
const patterns = Object.keys(en)
  .filter((key): key is MessageKey => key in en)
  .map((key) => ({ key, pattern: patternOf(en[key]), ownText: en[key].replaceAll(placeholder, '').length }))
  .toSorted((a, b) => b.ownText - a.ownText)

function patternOf(text: string): RegExp {
  const pattern = text
    .split(placeholder)
    .map((part, at) => (at % 2 === 0 ? part.replaceAll(/[^\w\s]/g, String.raw`\$&`) : `(?<${part}>.+)`))
    .join('')
  return new RegExp(`^${pattern}$`, 's')
}
