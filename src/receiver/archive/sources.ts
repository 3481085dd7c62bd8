import type { Dialling } from '../../platform/outward/poster.ts'
import { isLocalName, isPublicAddress, literalAddress } from '../../platform/outward/public-address.ts'
import { isLoopback } from '../../platform/settings.ts'

export type SourceRules = {
  /** MEDIA_HOSTS: no other host is called; undefined where any may be. */
  mediaHosts: readonly string[] | undefined
  production: boolean
}

/**
 * Whether the archive may fetch a link, as far as the link shows; each redirect is judged again, and a name's
 * addresses at the moment of the dial. An address or `localhost` that stands in MEDIA_HOSTS itself is let through,
 * over http too; a name that stands there is not, where it leads to an address that is not public.
 */
export function judgeSource(link: string, { mediaHosts, production }: SourceRules): Dialling {
  const refused = (why: string): Dialling => ({ kind: 'refused', why })
  if (!URL.canParse(link)) return refused('the link is no valid URL')
  const url = new URL(link)
  if (url.protocol !== 'https:' && url.protocol !== 'http:') return refused('the link is neither https nor http')
  if (url.username !== '' || url.password !== '') return refused('the link has credentials in it')
  if (mediaHosts !== undefined && !mediaHosts.includes(url.host))
    return refused(`its host ${url.host} is not in MEDIA_HOSTS`)
  const literal = literalAddress(url.hostname)
  const isThisMachine = isLoopback(literal ?? url.hostname)
  if ((literal !== undefined || isThisMachine) && (mediaHosts !== undefined || (isThisMachine && !production)))
    return { kind: 'named' }
  if (url.protocol !== 'https:') return refused('the link is not https')
  const internal = literal === undefined ? isLocalName(url.hostname) : !isPublicAddress(literal)
  return internal ? refused(`its host ${url.host} is not public`) : { kind: 'public' }
}
