// A button that copies an id ([data-copy]): beside the one that the pointer or
// the focus is on, and always among the facts of a page. Only script can copy,
// so that only script makes it.
import { say } from './console.js'

function make(value) {
  const button = document.createElement('button')
  Object.assign(button, { type: 'button', className: 'copy', title: 'Copy the whole of it' })
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

// What is fetched again comes without it.
document.addEventListener('htmx:after:swap', () => {
  const place = document.querySelector('[data-copy]:focus, [data-copy]:hover')
  if (place) offer(place)
})

async function copy(value) {
  try {
    await navigator.clipboard.writeText(value)
    say(`Copied: ${value}`)
  } catch {
    // Only secure pages have a clipboard.
    say(`The browser does not let us copy here: ${value}`)
  }
}

document.addEventListener('click', ({ target }) => {
  const value = target.closest('.copy')?.dataset.value
  if (value !== undefined) copy(value).catch(say)
})

for (const place of document.querySelectorAll('dl.facts [data-copy]')) place.after(make(place.dataset.copy))
