// Starts the viewer of /docs, follows the system's colour scheme, and adds what the viewer lacks for keyboards and
// screen readers.

const docs = document.getElementById('docs')

const dark = matchMedia('(prefers-color-scheme: dark)')
const follow = () => document.documentElement.classList.toggle('dark-mode', dark.matches)
dark.addEventListener('change', follow)
follow()

/** Names each select after its parameter, and makes scrolling boxes focusable. */
function makeAccessible() {
  for (const select of docs.querySelectorAll('select:not([aria-label])')) {
    select.setAttribute(
      'aria-label',
      select.id === 'servers' ? 'Server' : (select.closest('[data-param-name]')?.dataset.paramName ?? 'Choice'),
    )
  }
  for (const pre of docs.querySelectorAll('pre.microlight:not([tabindex])')) pre.tabIndex = 0
}
new MutationObserver(makeAccessible).observe(docs, { childList: true, subtree: true })

/** Removes the links inside buttons, which a keyboard would reach twice. The address changes without them too. */
const withoutLinks = () => ({
  wrapComponents: {
    DeepLink:
      (_original, { React }) =>
      ({ text }) =>
        React.createElement('span', {}, text),
  },
})

window.SwaggerUIBundle({
  url: docs.dataset.document,
  dom_id: '#docs',
  deepLinking: true,
  filter: true,
  validatorUrl: null,
  plugins: [withoutLinks],
})
