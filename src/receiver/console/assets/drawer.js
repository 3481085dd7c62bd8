// On a wide screen the details of a row open beside its list. They are read from the page of the row. A link opened in a
// new tab, or a copied link, leads to that page.
import { say } from './forms.js'
import { follow } from './live.js'

const wide = matchMedia('(min-width: 1400px)')
const within = '[data-rows] > [data-row]'
const detailed = /^\/(deliveries|requests)\/[0-9a-f-]{36}$/
const deadlineMs = 10_000
/** `j` held down passes many rows, so only a row on which it rests is read. */
const restMs = 120

let drawer
let timer
/** The latest requested address. Answers to earlier ones are dropped. */
let asked

/** Details do not open beside details. */
const isList = !detailed.test(location.pathname)
const canStand = (link) =>
  isList && wide.matches && !link.download && link.origin === location.origin && detailed.test(link.pathname)

function make() {
  const section = document.createElement('section')
  Object.assign(section, { className: 'drawer', tabIndex: -1 })
  section.setAttribute('aria-label', 'Details')
  section.innerHTML =
    '<div class="drawer-head"><a data-drawer-page>Open as a page</a><button type="button" class="quiet" data-drawer-close>Close <kbd>Esc</kbd></button></div><div data-drawer-body></div>'
  document.querySelector('main').append(section)
  return section
}

const references = ['aria-labelledby', 'aria-describedby', 'for']

/** Renames the ids in the details, so that they differ from those of the page, and excludes their rows from the keyboard. */
function apart(body) {
  for (const row of body.querySelectorAll('[data-row]')) row.removeAttribute('data-row')
  for (const name of ['id', ...references])
    for (const element of body.querySelectorAll(`[${name}]:not([${name}^=drawer-])`))
      element.setAttribute(name, `drawer-${element.getAttribute(name)}`)
}

async function open(url, { focus = false } = {}) {
  asked?.abort()
  const mine = (asked = new AbortController())
  drawer ??= make()
  drawer.setAttribute('aria-busy', 'true')
  drawer.querySelector('[data-drawer-page]').href = url
  if (focus) drawer.focus()
  try {
    const signal = AbortSignal.any([mine.signal, AbortSignal.timeout(deadlineMs)])
    const response = await fetch(url, { headers: { accept: 'text/html' }, signal })
    const text = await response.text()
    // The page of the row shows the error, or the sign-in.
    if (!response.ok) return location.assign(url)
    const main = new DOMParser().parseFromString(text, 'text/html').querySelector('main')
    const body = drawer.querySelector('[data-drawer-body]')
    apart(main)
    body.replaceChildren(...document.adoptNode(main).childNodes)
    globalThis.htmx?.process(body)
    follow()
    const anchor = new URL(url).hash.slice(1)
    if (anchor === '') drawer.scrollTop = 0
    else body.querySelector(`#drawer-${CSS.escape(anchor)}`)?.scrollIntoView()
    drawer.removeAttribute('aria-busy')
    say(`${body.querySelector('h1')?.textContent.trim() ?? 'The details'} opened beside the list.`)
  } catch (error) {
    if (mine.signal.aborted) return
    close()
    say(`The details could not be read: ${error.message}. Open them as a page.`)
  }
}

function close() {
  asked?.abort()
  clearTimeout(timer)
  const hadFocus = drawer.contains(document.activeElement)
  drawer.remove()
  drawer = undefined
  follow()
  if (hadFocus) document.querySelector(`${within}.marked a[href]`)?.focus()
}

/** Handles only a plain click or Enter on a link to a row's page, or to another view of the open row. */
document.addEventListener('click', (event) => {
  if (event.target.closest('[data-drawer-close]')) return close()
  const link = event.target.closest('a[href]')
  if (
    !link ||
    event.button !== 0 ||
    event.metaKey ||
    event.ctrlKey ||
    event.shiftKey ||
    event.altKey ||
    !canStand(link)
  )
    return
  const row = link.closest(within)
  const isLook = drawer?.contains(link) && link.closest('.tabs')
  if (!row && !isLook) return
  event.preventDefault()
  if (row) document.dispatchEvent(new CustomEvent('row:mark', { detail: row }))
  clearTimeout(timer)
  open(link.href, { focus: !isLook }).catch((error) => say(error))
})

// The drawer follows the mark while it is open.
document.addEventListener('row:marked', ({ detail: row }) => {
  const link = row.querySelector('a[href]')
  if (!drawer || !link || !canStand(link)) return
  clearTimeout(timer)
  timer = setTimeout(() => drawer && open(link.href).catch(say), restMs)
})

document.addEventListener('keydown', (event) => {
  const isElsewhere =
    event.defaultPrevented || event.target.matches('input, textarea, select') || document.querySelector('dialog[open]')
  if (event.key === 'Escape' && drawer && !isElsewhere) close()
})

// Details that were fetched again.
document.addEventListener('htmx:after:swap', () => drawer && apart(drawer))

// The window became too narrow for both. The page of the row is one press away.
wide.addEventListener('change', () => drawer && close())
