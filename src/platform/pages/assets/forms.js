// Messages in the footer, and forms that are sent once. Every page of both consoles loads this.

/** Says something in the footer; screen readers read it out. */
export function say(text) {
  const place = document.querySelector('#announced')
  if (place) place.textContent = text
}

/** Copies a text and says that it is `done`. Only secure pages have a clipboard. */
export async function copy(text, done) {
  try {
    await navigator.clipboard.writeText(text)
    say(done)
  } catch {
    say(`The browser does not allow copying here: ${text}`)
  }
}

// A second click does not repeat an action whose answer has not come yet.
let sent = new WeakSet()
addEventListener('pageshow', () => (sent = new WeakSet()))
document.addEventListener('submit', (event) => {
  if (event.defaultPrevented || !event.target.matches('[method=post]')) return
  if (sent.has(event.target)) {
    event.preventDefault()
    say('It was sent already. Reload the page to send it again.')
  }
  sent.add(event.target)
})
