// Starts the viewer of /docs, follows the system's scheme, and mends what the viewer leaves out for
// those who use a keyboard or hear the page.

const docs = document.getElementById('docs')

const dark = matchMedia('(prefers-color-scheme: dark)')
const follow = () => document.documentElement.classList.toggle('dark-mode', dark.matches)
dark.addEventListener('change', follow)
follow()

/** Lists to choose from get the name of their parameter, and what scrolls can be reached. */
function mend() {
  for (const select of docs.querySelectorAll('select:not([aria-label])')) {
    select.setAttribute(
      'aria-label',
      select.id === 'servers' ? 'Server' : (select.closest('[data-param-name]')?.dataset.paramName ?? 'Choice'),
    )
  }
  for (const pre of docs.querySelectorAll('pre.microlight:not([tabindex])')) pre.tabIndex = 0
}
new MutationObserver(mend).observe(docs, { childList: true, subtree: true })

/** Its buttons have links in them, which a keyboard would reach twice: the address is changed without them too. */
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
