// Media that cannot be loaded, for example because the provider answers 404, are replaced by a text.
function replace(media) {
  // In a list, the word for it is enough.
  if (media.matches('.thumbnail')) return media.replaceWith(media.alt)
  // The archive makes no thumbnail of some pictures, such as very large ones. The picture itself is there.
  if (!media.matches('.thumb') && media.src.endsWith('/thumbnail'))
    return media.setAttribute('src', media.src.slice(0, -'/thumbnail'.length))
  const text = `This ${media.tagName === 'IMG' ? 'picture' : media.tagName.toLowerCase()} is not available at its link.`
  const small = { className: 'thumb soft', title: text, ariaLabel: text, role: 'img', textContent: '✕' }
  const whole = { className: 'no-media', textContent: text }
  media.replaceWith(Object.assign(document.createElement('span'), media.matches('.thumb') ? small : whole))
}

function isLost(media) {
  if (media.tagName === 'IMG') return media.complete && media.naturalWidth === 0
  return media.error !== null || media.networkState === HTMLMediaElement.NETWORK_NO_SOURCE
}

// Errors of media do not bubble.
document.addEventListener(
  'error',
  ({ target }) => {
    if (target instanceof HTMLElement && target.matches('main :is(img, video, audio)')) replace(target)
  },
  true,
)
for (const media of document.querySelectorAll('main :is(img, video, audio)'))
  if (isLost(media)) {
    // A lazy picture that has not started only looks lost. One that failed before this script was loaded fails again.
    if (media.loading === 'lazy') media.setAttribute('src', media.src)
    else replace(media)
  }
