import type { ReceiverSettings } from '../../settings.ts'

export type LinkPolicy = {
  /** Origins beyond https that pages may load media from, for the content security policy. */
  sources: readonly string[]
  /** Why a link from a payload must not become a link or a picture on a page; undefined where it may. */
  whyNot: (link: string) => string | undefined
  allows: (link: string) => boolean
  /** Where this console has a copy of a file, small or whole; undefined where it has none. */
  copyOf: (sha256: string | null) => { small: string; whole: string } | undefined
}

/** Only https, only hosts of MEDIA_HOSTS where it is set; outside production, loopback too. */
export function linkPolicy({
  mediaHosts,
  mediaArchive,
  production,
}: Pick<ReceiverSettings, 'mediaHosts' | 'production'> & Partial<Pick<ReceiverSettings, 'mediaArchive'>>): LinkPolicy {
  const loopback = /^http:\/\/(127\.0\.0\.1|localhost)(:\d+)?\//
  const whyNot = (link: string) => {
    if (!URL.canParse(link)) return 'it is no valid URL'
    const url = new URL(link)
    const safe = url.protocol === 'https:' || (!production && loopback.test(url.href))
    if (!safe) return 'it is not https'
    return mediaHosts === undefined || mediaHosts.includes(url.host) ? undefined : 'its host is not in MEDIA_HOSTS'
  }
  return {
    sources: production ? [] : ['http://127.0.0.1:*', 'http://localhost:*'],
    whyNot,
    allows: (link) => whyNot(link) === undefined,
    copyOf: (sha256) =>
      mediaArchive === undefined || sha256 === null
        ? undefined
        : { small: `/media/${sha256}/thumbnail`, whole: `/media/${sha256}` },
  }
}
