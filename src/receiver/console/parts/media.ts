import { html } from 'hono/html'
import type { Markup } from '../../../platform/pages/parts.ts'
import type { Media } from '../../queries/request-detail.ts'
import type { ReceiverSettings } from '../../settings.ts'
import { foreign, number } from './parts.ts'

// The media of a result. Links that are not allowed are shown as text.

export type LinkPolicy = {
  /** Origins without https from which pages may load media, for the content security policy. */
  plainOrigins: readonly string[]
  /** The reason why a link of a payload must not be a link or a picture on a page; undefined if it may. */
  whyNot: (link: string) => string | undefined
  /** The paths of this console's copies of a file, small and whole; undefined without a copy. */
  copyOf: (sha256: string | null) => { small: string; whole: string } | undefined
}

type LinkSettings = Pick<ReceiverSettings, 'mediaHosts' | 'mediaArchive' | 'production'>

/**
 * Allows https links to the hosts of MEDIA_HOSTS, or to any host if that is not set. Outside production, http links to
 * loopback count as https.
 */
export function linkPolicy({ mediaHosts, mediaArchive, production }: LinkSettings): LinkPolicy {
  const loopback = /^http:\/\/(127\.0\.0\.1|localhost)(:\d+)?\//
  const whyNot = (link: string) => {
    if (!URL.canParse(link)) return 'it is not a valid URL'
    const url = new URL(link)
    const safe = url.protocol === 'https:' || (!production && loopback.test(url.href))
    if (!safe) return 'it is not https'
    return mediaHosts === undefined || mediaHosts.includes(url.host) ? undefined : 'its host is not in MEDIA_HOSTS'
  }
  return {
    plainOrigins: production ? [] : ['http://127.0.0.1:*', 'http://localhost:*'],
    whyNot,
    copyOf: (sha256) =>
      mediaArchive === undefined || sha256 === null
        ? undefined
        : { small: `/media/${sha256}/thumbnail`, whole: `/media/${sha256}` },
  }
}

type Linked = Pick<Media, 'url' | 'sha256'> & { kind: string }

/** A thumbnail of the first media item of a result. */
export function thumbnail({ kind, url, sha256 }: Linked, links: LinkPolicy): Markup {
  const copy = links.copyOf(sha256)
  const refused = copy === undefined ? links.whyNot(url) : undefined
  if (refused !== undefined)
    return html`<span class="thumb soft" title="Not shown: ${refused}">✕<span class="unseen">not shown: ${refused}</span></span>`
  if (kind === 'image')
    return html`<img class="thumb" src="${copy?.small ?? url}" alt="" width="26" height="26" loading="lazy" decoding="async" />`
  return html`<span class="thumb soft" aria-hidden="true">${kind === 'video' ? '▶' : '♪'}</span>`
}

/** True if the provider no longer serves the file, and the archive has no copy. */
function isGone({ archive_error }: Pick<Media, 'archive_error'>): boolean {
  return archive_error?.startsWith('gone') === true
}

/** The archive's error without its code: `no copy exists: the provider answered 404`. */
function whyNoCopy(item: Pick<Media, 'archive_error'>): Markup {
  const error = item.archive_error?.replace(/^\w+: /, '')
  return html`${isGone(item) ? 'no copy exists' : 'not archived'}: ${foreign(error, 120)}`
}

/** Every media item of a result, with its player, size and links. */
export function gallery(media: readonly Media[], links: LinkPolicy): Markup {
  return html`<div class="gallery">${media.map((item) => figure(item, links))}</div>`
}

function figure(item: Media, links: LinkPolicy): Markup {
  const { kind, position, width, height, duration_seconds, url, original_url, sha256, archive_error } = item
  const name = `${kind} ${position + 1}`
  const [copy, gone] = [links.copyOf(sha256), isGone(item)]
  return html`<figure class="${kind}">
    ${copy !== undefined || links.whyNot(url) === undefined ? player({ ...item, name, showsLength: true }, links) : html`<div class="blank soft">not shown</div>`}
    <figcaption>
      <b>${name}</b>
      ${width === null || height === null ? '' : html`<span class="soft">${width} × ${height}</span>`}
      ${duration_seconds === null ? '' : html`<span class="soft">${number(duration_seconds, { decimals: 1, unit: 's' })}</span>`}
      ${copy === undefined ? '' : html`<span class="link"><a href="${copy.whole}">archived</a></span>`}
      ${archive_error === null ? '' : html`<span class="why">${whyNoCopy(item)}</span>`}
      <span class="link">${gone ? foreign(url, 60) : link(url, links)}</span>
      ${original_url === null || original_url === url ? '' : html`<span class="link"><span class="soft">original</span> ${link(original_url, links)}</span>`}
    </figcaption>
  </figure>`
}

/**
 * A media item of a result, from the archive if it has a copy. A picture leads to `href`, by default to the whole one.
 * `showsLength`: the browser reads the length of a sound before it is played.
 */
export function player(
  media: Linked & { name: string; href?: string; showsLength?: boolean },
  links: LinkPolicy,
): Markup {
  const { kind, url, sha256, name } = media
  const { small, whole } = links.copyOf(sha256) ?? { small: url, whole: url }
  switch (kind) {
    case 'video':
      return html`<video src="${whole}" ${small === whole ? '' : html`poster="${small}"`} controls preload="metadata" aria-label="${name}"></video>`
    case 'audio':
      return html`<audio src="${whole}" controls preload="${media.showsLength ? 'metadata' : 'none'}" aria-label="${name}"></audio>`
    default:
      return html`<a href="${media.href ?? whole}"><img src="${small}" alt="${name}" loading="lazy" decoding="async" /></a>`
  }
}

/** A link of a payload, or its text with the reason why it is not a link. */
export function link(url: string, links: LinkPolicy): Markup {
  const refused = links.whyNot(url)
  if (refused === undefined) return html`<a href="${url}" rel="noreferrer">${foreign(url, 60)}</a>`
  return html`${foreign(url, 200)} <span class="why">no link: ${refused}</span>`
}
