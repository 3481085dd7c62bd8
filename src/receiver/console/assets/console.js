// The keyboard, selection, tail and messages of every page. Elements take part
// by data attributes, so that no page needs a script of its own.

import { copy, say } from './forms.js'
import { linkOf } from './rows.js'

const one = (selector) => document.querySelector(selector)
const all = (selector) => [...document.querySelectorAll(selector)]
const rows = () => all('[data-rows] > [data-row]')
const marked = () => one('[data-row].marked')

/** Sets a parameter of the address, so that a copied link shows the same page. Undefined removes it. */
export function keep(name, value) {
  const url = new URL(location.href)
  if (value === undefined) url.searchParams.delete(name)
  else url.searchParams.set(name, value)
  history.replaceState(history.state, '', url)
}

function mark(row) {
  if (!row) return
  marked()?.classList.remove('marked')
  row.classList.add('marked')
  row.scrollIntoView({ block: 'nearest' })
  linkOf(row)?.focus({ preventScroll: true })
  keep('open', row.dataset.row)
  document.dispatchEvent(new CustomEvent('row:marked', { detail: row }))
}
document.addEventListener('row:mark', ({ detail }) => mark(detail))

function step(by) {
  const list = rows()
  const at = list.indexOf(marked())
  mark(list[at === -1 ? (by > 0 ? 0 : list.length - 1) : Math.min(list.length - 1, Math.max(0, at + by))])
}

const boxes = () => all('[data-row] input[type=checkbox]')

function countSelected() {
  const selected = boxes().filter((box) => box.checked)
  for (const box of boxes()) box.closest('[data-row]').classList.toggle('selected', box.checked)
  for (const place of all('[data-selected-count]')) place.textContent = String(selected.length)
  for (const button of all('[data-needs-selection]')) button.disabled = selected.length === 0
  const every = one('[data-select-all]')
  if (!every) return
  every.checked = selected.length > 0 && selected.length === boxes().length
  every.indeterminate = selected.length > 0 && !every.checked
}

function select() {
  const box = marked()?.querySelector('input[type=checkbox]')
  if (!box) return
  box.checked = !box.checked
  countSelected()
}

/** Replays the selected rows, else the marked row. */
function replay() {
  const button = one('[data-key-action=replay]')
  if (button?.disabled) select()
  button?.click()
}

const copyLink = () => copy(location.href, 'The link is copied.')

const help = () => one('#help')?.showModal()

const keys = {
  '/': () => {
    const field = one('[data-search]') ?? one('[data-find]')
    field?.focus()
    field?.select()
  },
  j: () => step(1),
  k: () => step(-1),
  x: select,
  r: replay,
  t: () => one('[data-key-action=tail]')?.click(),
  c: copyLink,
  '?': help,
  Enter: () => linkOf(marked() ?? one('[data-row]:focus'))?.click(),
}

document.addEventListener('keydown', (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === 'k' && one('[data-find]')) {
    event.preventDefault()
    return one('[data-find]').select()
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || one('dialog[open]')) return
  const { target } = event
  const typing =
    target.isContentEditable || (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && target.type !== 'checkbox')
  if (event.key === 'Escape' && typing) return target.blur()
  if (typing || !Object.hasOwn(keys, event.key)) return
  // Enter presses the focused link or button.
  if (event.key === 'Enter' && target !== document.body && target.matches('a, button, summary, input, [role=button]'))
    return
  event.preventDefault()
  keys[event.key]()
})

document.addEventListener('click', (event) => {
  const on = (selector) => event.target.closest(selector)
  if (on('[data-help]')) help()
  else if (on('[data-copy-link]')) copyLink().catch((error) => say(error))
  else if (on('[data-tail]')) toggleTail(on('[data-tail]'))
})

document.addEventListener('change', (event) => {
  const { target } = event
  if (target.matches('[data-select-all]')) for (const box of boxes()) box.checked = target.checked
  if (target.matches('[data-select-all], [data-row] input')) countSelected()
  if (target.matches('[data-filters] select')) target.form.requestSubmit()
})

// Empty fields stay out of the address.
document.addEventListener('submit', (event) => {
  if (!event.target.matches('[data-filters]')) return
  const empty = [...event.target.elements].filter((field) => field.name && field.value === '')
  for (const field of empty) field.disabled = true
  setTimeout(() => empty.forEach((field) => (field.disabled = false)))
})

// The tail. An event announces new rows, which are then read from the address of the page, so that only the page
// renders rows.

const refreshMs = 300
/** Reading takes a quarter of the time at most. */
const restsPerRead = 3
const maxTailed = 200
let tail

function toggleTail(button) {
  if (tail) stopTail('Tail is off.')
  else startTail(button)
}

function startTail(button) {
  keep('tail', 'on')
  const url = new URL(location.href)
  if (url.searchParams.has('cursor')) {
    // New rows belong to the first page only.
    url.searchParams.delete('cursor')
    return location.assign(url)
  }
  const source = new EventSource(button.dataset.tail)
  tail = { source, button, timer: undefined, rest: refreshMs }
  button.setAttribute('aria-pressed', 'true')
  source.addEventListener('open', () => {
    say('Tail is on: new rows appear automatically.')
    refreshSoon()
  })
  source.addEventListener('message', refreshSoon)
  source.addEventListener('error', () => {
    if (source.readyState === EventSource.CLOSED)
      stopTail('The tail was refused: too many are open, or a filter is wrong. Try again in a while.')
    else say('The tail lost its connection and reconnects.')
  })
}

function stopTail(message) {
  tail.source.close()
  clearTimeout(tail.timer)
  tail.button.setAttribute('aria-pressed', 'false')
  tail = undefined
  keep('tail', undefined)
  say(message)
}

function refreshSoon() {
  if (!tail) return
  if (tail.timer === undefined) tail.timer = setTimeout(refresh, tail.rest)
  else tail.again = tail.reading
}

async function refresh() {
  const mine = tail
  const started = performance.now()
  Object.assign(mine, { reading: true, again: false })
  try {
    const url = new URL(location.href)
    url.searchParams.delete('cursor')
    const response = await fetch(url, { headers: { accept: 'text/html' }, signal: AbortSignal.timeout(10_000) })
    if (!response.ok) throw new Error(`the page answered ${response.status}`)
    const fresh = new DOMParser().parseFromString(await response.text(), 'text/html')
    if (tail === mine) insert([...fresh.querySelectorAll('[data-rows] > [data-row]')])
  } catch (error) {
    say(`New rows could not be read: ${error.message}.`)
  } finally {
    Object.assign(mine, {
      timer: undefined,
      reading: false,
      rest: Math.max(refreshMs, restsPerRead * (performance.now() - started)),
    })
    // Rows that arrived during the read may be missing from it.
    if (tail === mine && mine.again) refreshSoon()
  }
}

/** Inserts new rows in the order of the page. Existing rows are not replaced, so that marks and selections stay. */
function insert(fresh) {
  const body = one('[data-rows]')
  const known = new Map(rows().map((row) => [row.dataset.row, row]))
  if (known.size > 0 && fresh.length > 0 && !fresh.some((row) => known.has(row.dataset.row)))
    say('More rows arrived at once than a page holds, so some are not shown. Reload to see all.')
  let place = body.firstElementChild
  for (const row of fresh) {
    const standing = known.get(row.dataset.row)
    if (!standing) body.insertBefore(document.adoptNode(row), place).classList.add('fresh')
    place = standing ? standing.nextElementSibling : place
  }
  for (const row of rows().slice(maxTailed)) row.remove()
  if (body.childElementCount > 0) one('.empty')?.remove()
  countSelected()
}

const parameters = new URLSearchParams(location.search)
const opened = parameters.get('open')
if (opened) mark(rows().find((row) => row.dataset.row === opened))
if (parameters.get('tail') === 'on' && one('[data-tail]')) startTail(one('[data-tail]'))
countSelected()
