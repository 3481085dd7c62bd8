// A row of a list opens its first link: by a press anywhere in it, and in a new tab by the middle button or with Ctrl.
const pressable = 'a, button, input, select, textarea, label, summary, video, audio'

/** The link of a row. Links that look like buttons, and downloads, do not count. */
export function linkOf(row) {
  return row?.querySelector('a[href]:not(.button, [download])')
}

function pressed({ target }) {
  if (target.closest(pressable)) return undefined
  return linkOf(target.closest('main tbody > tr'))
}

document.addEventListener('click', (event) => {
  const link = pressed(event)
  // The end of selecting text is a click too.
  if (!link || getSelection().type === 'Range') return
  const { ctrlKey, metaKey, shiftKey } = event
  link.dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true, ctrlKey, metaKey, shiftKey }))
})

const isMiddle = ({ button }) => button === 1

document.addEventListener('auxclick', (event) => {
  const link = isMiddle(event) && pressed(event)
  if (link) window.open(link.href, '_blank', 'noopener')
})
// Otherwise the middle button starts to scroll.
document.addEventListener('mousedown', (event) => isMiddle(event) && pressed(event) && event.preventDefault())
