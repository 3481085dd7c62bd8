import type { Dialling } from '../../platform/outward/public-url.ts'
import { isLocalName, isPublicAddress, literalAddress } from '../../platform/outward/public-url.ts'
import { isLoopback } from '../../platform/settings.ts'

export type LinkRules = {
  /** MEDIA_HOSTS: the only hosts that are called; undefined allows any. */
  mediaHosts: readonly string[] | undefined
  production: boolean
}

/**
 * Decides from a link alone whether the archive may fetch it. Each redirect is judged too, and the addresses of a name
 * are checked when they are dialled. An address or `localhost` in MEDIA_HOSTS is allowed, also over http. A name in
 * MEDIA_HOSTS is not allowed if it resolves to an address that is not public. Outside production and without
 * MEDIA_HOSTS, this machine is allowed too.
 */
export function judgeLink(link: string, { mediaHosts, production }: LinkRules): Dialling {
  const refused = (why: string): Dialling => ({ kind: 'refused', why })
  if (!URL.canParse(link)) return refused('the link is not a valid URL')
  const url = new URL(link)
  if (url.protocol !== 'https:' && url.protocol !== 'http:') return refused('the link is neither https nor http')
  if (url.username !== '' || url.password !== '') return refused('the link contains credentials')
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
