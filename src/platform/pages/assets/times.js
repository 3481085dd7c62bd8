// Shows the age of times in lists, by the receiver's clock. The title has the exact time. Where times are compared
// ([data-exact]), and by choice of the reader, the exact time is shown instead.
const everyMs = 5000
/** After a week the date says more. */
const oldMs = 7 * 86_400_000
const now = document.querySelector('[data-now]')
const aheadMs = Date.parse(now?.dataset.now ?? '') - Date.now() || 0
const button = document.querySelector('[data-exact-times]')
const kept = 'exact-times'
/** The text of the server and the text that replaced it. */
const written = new WeakMap()

function wantsExact() {
  try {
    return localStorage.getItem(kept) === 'yes'
  } catch {
    return false
  }
}
let isExact = wantsExact()

function words(milliseconds) {
  const seconds = Math.abs(milliseconds) / 1000
  if (seconds < 5) return 'just now'
  const [divisor, unit] =
    seconds < 90 ? [1, 's'] : seconds < 5400 ? [60, 'min'] : seconds < 129_600 ? [3600, 'h'] : [86_400, 'd']
  const text = `${Math.round(seconds / divisor)}\u00a0${unit}`
  return milliseconds < 0 ? `in ${text}` : `${text} ago`
}

function say(element, at) {
  const known = written.get(element)
  const isOurs = known !== undefined && element.textContent === known.words
  const theirs = isOurs ? known.theirs : [...element.childNodes]
  const milliseconds = at - Date.parse(element.dateTime)
  if (isExact || milliseconds > oldMs) {
    if (isOurs) element.replaceChildren(...theirs)
    return
  }
  const text = words(milliseconds)
  if (isOurs && known.words === text) return
  written.set(element, { words: text, theirs })
  element.replaceChildren(text)
}

function sayAll() {
  const at = Date.now() + aheadMs
  for (const element of document.querySelectorAll('time[data-ago]'))
    if (!element.closest('[data-exact]')) say(element, at)
}

function show() {
  button?.setAttribute('aria-pressed', String(isExact))
  sayAll()
}

button?.addEventListener('click', () => {
  isExact = !isExact
  try {
    localStorage.setItem(kept, isExact ? 'yes' : 'no')
  } catch {
    // Without storage, the choice holds for this page only.
  }
  show()
})
if (button) button.hidden = !document.querySelector('time[data-ago]')

// Converts later rows and refreshed parts before they are painted.
new MutationObserver(sayAll).observe(document.querySelector('main'), { childList: true, subtree: true })
setInterval(() => document.hidden || sayAll(), everyMs)
document.addEventListener('visibilitychange', sayAll)
show()
