// Parts of a page that fetch themselves again ([data-live]): only while the page is visible, and without losing opened
// details, marked rows or paused media.
import { keep } from './console.js'
import { say } from './forms.js'

const toggle = document.querySelector('[data-live-toggle]')
const parts = () => document.querySelectorAll('[data-live]')
const paused = () => toggle?.getAttribute('aria-pressed') === 'false'
let lost = false

document.addEventListener('htmx:before:request', (event) => {
  if (event.target.matches('[data-live]') && (document.hidden || paused())) event.preventDefault()
})

function refresh() {
  for (const part of parts()) part.dispatchEvent(new CustomEvent('refresh'))
}

document.addEventListener('visibilitychange', () => {
  if (!document.hidden) refresh()
  follow()
})

toggle?.addEventListener('click', () => {
  const on = paused()
  toggle.setAttribute('aria-pressed', String(on))
  keep('live', on ? undefined : 'off')
  say(on ? 'The page refreshes automatically.' : 'The page no longer refreshes.')
  if (on) refresh()
})

document.addEventListener('htmx:before:response', (event) => {
  const { status } = event.detail.ctx.response
  if (!event.target.matches('[data-live]')) return
  // The session has ended, and the reloaded page shows the sign-in.
  if (status === 401) {
    event.preventDefault()
    location.reload()
  }
  if (lost) say('The connection is back.')
  lost = false
})

document.addEventListener('htmx:error', (event) => {
  if (!event.target.matches?.('[data-live]') || lost) return
  lost = true
  say('mediadock does not answer, so this page may be out of date. It retries automatically.')
})

// The counters of the navigation follow this page.
function count() {
  if (!document.querySelector('#live')) return
  const known = document.querySelector('[data-counts]')?.dataset.counts
  // Unknown figures hide the counters.
  const counts = known === undefined ? {} : JSON.parse(known)
  for (const place of document.querySelectorAll('[data-count]')) {
    const { shown, of, tone } = counts[place.dataset.count] ?? { shown: '0', of: '', tone: '' }
    place.hidden = shown === '0'
    place.className = `count ${tone}`
    place.querySelector('b').textContent = shown
    place.querySelector('span').textContent = of
  }
}
document.addEventListener('htmx:after:swap', count)
count()

// The server does not know which row is marked and which details are open.
globalThis.htmx.registerExtension('keep-open', {
  htmx_before_morph_attr: (element, { attrName, newValue }) => {
    if (newValue !== null) return true
    return !(
      (attrName === 'open' && element.matches('details')) ||
      (attrName === 'class' && element.matches('[data-row]'))
    )
  },
})

// The states of an incomplete request ([data-follows]), as a page or beside its list. The receiver polls the request
// while they are read, so a hidden page does not read them.
let stream

/** Reads the events of the request that is shown now, and of no other. */
export function follow() {
  const shown = document.hidden ? undefined : document.querySelector('[data-follows]')?.dataset.follows
  if (stream?.path === shown) return
  stream?.source.close()
  stream = shown === undefined ? undefined : { path: shown, source: new EventSource(shown) }
  if (!stream) return
  const { source } = stream
  const show = () => document.querySelector('[data-follows]')?.dispatchEvent(new CustomEvent('refresh'))
  for (const name of ['queued', 'progress', 'first_media', 'complete', 'failed']) source.addEventListener(name, show)
  source.addEventListener('error', () => {
    if (source.readyState !== EventSource.CLOSED) return
    say('The progress of this request is not shown live: too many pages follow requests. Reload the page in a while.')
    // Shows the sign-in if the session has ended.
    show()
  })
}
document.addEventListener('htmx:after:swap', follow)
follow()
