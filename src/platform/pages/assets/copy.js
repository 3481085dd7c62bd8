// Adds a copy button to every [data-copy]: always among the facts of a page and beside code, elsewhere while the
// pointer or the focus is on it. Only scripts can copy, so only a script adds the button.
import { copy, say } from './forms.js'

function make(value) {
  const button = document.createElement('button')
  Object.assign(button, { type: 'button', className: 'copy', title: 'Copy' })
  button.dataset.value = value
  button.setAttribute('aria-label', `Copy ${value.slice(0, 40)}`)
  return button
}

let offered

function offer(place) {
  if (place.nextElementSibling?.matches('.copy') || (offered && offered === document.activeElement)) return
  offered?.remove()
  offered = make(place.dataset.copy)
  place.after(offered)
}

document.addEventListener('pointerover', ({ target }) => {
  const place = target.closest('[data-copy]')
  if (place) return offer(place)
  if (!offered || offered === target || offered.parentElement?.contains(target)) return
  const { activeElement } = document
  if (offered !== activeElement && offered.previousElementSibling !== activeElement) offered.remove()
})

document.addEventListener('focusin', ({ target }) => {
  if (target.matches('[data-copy]')) offer(target)
  else if (target !== offered) offered?.remove()
})

// A part that is fetched again comes without the button.
document.addEventListener('htmx:after:swap', () => {
  const place = document.querySelector('[data-copy]:focus, [data-copy]:hover')
  if (place) offer(place)
})

document.addEventListener('click', ({ target }) => {
  const value = target.closest('.copy')?.dataset.value
  if (value !== undefined) copy(value, `Copied: ${value}`).catch(say)
})

for (const place of document.querySelectorAll('dl.facts [data-copy], code[data-copy], pre[data-copy]'))
  place.after(make(place.dataset.copy))
