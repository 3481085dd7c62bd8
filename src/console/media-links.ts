import type { ReceiverSettings } from '../receiver/settings.ts'

export type LinkPolicy = {
  /** Origins beyond https that pages may load media from, for the content security policy. */
  sources: readonly string[]
  /** Whether a link from a payload may become a link or a picture on a page. */
  allows: (link: string) => boolean
}

/** Only https, only hosts of MEDIA_HOSTS where it is set; outside production, loopback too. */
export function linkPolicy({ mediaHosts, production }: Pick<ReceiverSettings, 'mediaHosts' | 'production'>): LinkPolicy {
  const loopback = /^http:\/\/(127\.0\.0\.1|localhost)(:\d+)?\//
  return {
    sources: production ? [] : ['http://127.0.0.1:*', 'http://localhost:*'],
    allows: (link) => {
      if (!URL.canParse(link)) return false
      const url = new URL(link)
      const safe = url.protocol === 'https:' || (!production && loopback.test(url.href))
      return safe && (mediaHosts === undefined || mediaHosts.includes(url.host))
    },
  }
}
