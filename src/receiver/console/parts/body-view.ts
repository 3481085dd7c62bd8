import type { Request, Response } from 'express'
import { html } from 'hono/html'
import { formatJson, maxFormattedBytes, maxFormattedDepth, shownCharacters } from '../../../platform/json-text.ts'
import { type Markup, linkTo, facts, type Fact, tabs } from '../../../platform/pages/parts.ts'
import { foreign, number, size, visible, queryOf } from './parts.ts'

export const bodyViews = ['text', 'formatted', 'hex'] as const
export type BodyView = (typeof bodyViews)[number]

/** The chosen view. */
export function bodyViewOf(req: Request): BodyView {
  return bodyViews.find((name) => name === queryOf(req)['body']) ?? 'text'
}

/** Sends foreign text or bytes as a file, never as a type that a browser would show. */
export function sendDownload(res: Response, filename: string, content: Buffer | string): void {
  res.set({
    'content-type': 'application/octet-stream',
    'content-disposition': `attachment; filename="${filename}"`,
    'cache-control': 'no-store',
  })
  res.end(content)
}

/** The headers of a webhook, with a note about the headers that are left out. */
export function headersPart(headers: Readonly<Record<string, string>>, note: string): Markup {
  const values = Object.entries(headers).map(([name, value]): Fact => [
    foreign(name, 60),
    html`<span class="mono">${foreign(value, 1000)}</span>`,
  ])
  return html`${facts(values)} <p class="soft">${note}</p>`
}

/** A body in the chosen view, with the tabs of the others. `path` is the page; `<path>/body` has the bytes. */
export function bodyPart(path: string, body: Buffer, view: BodyView): Markup {
  const cut = `The first ${size(shownCharacters)} of ${size(body.length)} are shown. `
  const views = bodyViews.map((name) => ({
    label: name.slice(0, 1).toUpperCase() + name.slice(1),
    href: `${linkTo(path, { body: name })}#body`,
    current: name === view,
  }))
  return html`${tabs('Body as', views)}
    ${body.length === 0 ? html`<p class="soft">The body is empty.</p>` : bodyView(body, view)}
    <p class="soft">${body.length > shownCharacters ? cut : ''}<a href="${path}/body" download>Download the bytes</a></p>`
}

/** Shows a body as text, formatted JSON or hex. Invisible characters are named, so that none hides or reverses text. */
export function bodyView(body: Buffer, view: BodyView): Markup {
  const shown = body.subarray(0, shownCharacters)
  if (view === 'hex') return box(html`${hexLines(shown)}`, 'lines')
  if (view === 'text') return box(visible(shown.toString('utf8')))
  const formatted =
    body.length > maxFormattedBytes ? { refused: 'too_long' as const } : formatJson(body.toString('utf8'))
  if ('refused' in formatted)
    return html`<p class="soft">The body is ${whyNot[formatted.refused]}, so it is shown unchanged.</p>${box(visible(shown.toString('utf8')))}`
  return html`${box(visible(formatted.text))}${formatted.cut ? html`<p class="soft">Only the first ${number(shownCharacters)} characters of the formatted body are shown.</p>` : ''}`
}

const whyNot = {
  too_long: `longer than ${size(maxFormattedBytes)}`,
  too_deep: `nested deeper than ${maxFormattedDepth} levels`,
  no_json: 'not JSON',
} as const

function box(content: Markup, kind = ''): Markup {
  return html`<pre class="body ${kind}" tabindex="0" role="group" aria-label="Body">${content}</pre>`
}

/** 16 bytes a line, in hexadecimal and as ASCII. */
function hexLines(bytes: Buffer): string {
  const lines: string[] = []
  for (let at = 0; at < bytes.length; at += 16) {
    const line = bytes.subarray(at, at + 16)
    const hex = [...line].map((byte) => byte.toString(16).padStart(2, '0'))
    const halves = [hex.slice(0, 8).join(' '), hex.slice(8).join(' ')]
    const ascii = [...line].map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : '.')).join('')
    lines.push(`${at.toString(16).padStart(6, '0')}  ${halves[0]?.padEnd(23)}  ${halves[1]?.padEnd(23)}  ${ascii}`)
  }
  return lines.join('\n')
}
