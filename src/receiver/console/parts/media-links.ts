import type { ReceiverSettings } from '../../settings.ts'

export type LinkPolicy = {
  /** Origins without https from which pages may load media, for the content security policy. */
  plainOrigins: readonly string[]
  /** The reason why a link of a payload must not be a link or a picture on a page; undefined if it may. */
  whyNot: (link: string) => string | undefined
  allows: (link: string) => boolean
  /** The paths of this console's copies of a file, small and whole; undefined without a copy. */
  copyOf: (sha256: string | null) => { small: string; whole: string } | undefined
}

/**
 * Allows https links to the hosts of MEDIA_HOSTS, or to any host if that is not set. Outside production, http links to
 * loopback count as https.
 */
export function linkPolicy({
  mediaHosts,
  mediaArchive,
  production,
}: Pick<ReceiverSettings, 'mediaHosts' | 'production'> & Partial<Pick<ReceiverSettings, 'mediaArchive'>>): LinkPolicy {
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
    allows: (link) => whyNot(link) === undefined,
    copyOf: (sha256) =>
      mediaArchive === undefined || sha256 === null
        ? undefined
        : { small: `/media/${sha256}/thumbnail`, whole: `/media/${sha256}` },
  }
}
