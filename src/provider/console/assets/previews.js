// Shows the pictures that a field links to, below the field. The page's policy decides which links may be loaded.
const maxPictures = 8
const deadlines = new WeakMap()
const restMs = 400

function show(field) {
  const links = field.value.split(/\s+/).filter((link) => URL.canParse(link))
  const place = field.nextElementSibling?.matches('.previews')
    ? field.nextElementSibling
    : document.createElement('div')
  place.className = 'previews'
  place.replaceChildren(
    ...links
      .slice(0, maxPictures)
      .map((link) => Object.assign(document.createElement('img'), { src: link, alt: link })),
  )
  if (!place.isConnected && links.length > 0) field.after(place)
}

document.addEventListener('input', ({ target }) => {
  if (!target.matches('[data-preview]')) return
  clearTimeout(deadlines.get(target))
  deadlines.set(target, setTimeout(show, restMs, target))
})
for (const field of document.querySelectorAll('[data-preview]')) show(field)
