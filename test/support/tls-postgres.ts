import fs from 'node:fs/promises'
import path from 'node:path'
import { makeAuthority, type Authority } from './certificates.ts'
import { withPackagedPostgres } from './own-packaged-postgres.ts'
import type { PackagedPostgres } from './packaged-postgres.ts'

export type TlsPostgres = PackagedPostgres & {
  authority: Authority
  /** Its connection string with these parameters. */
  urlWith: (parameters: Record<string, string>, host?: string) => string
}

export type TlsOptions = { names?: string[]; encryptedOnly?: boolean }

/** A packaged server with a certificate for these names. Requires TLS unless configured otherwise. */
export async function withTlsPostgres({
  names = ['DNS:localhost', 'IP:127.0.0.1'],
  encryptedOnly = true,
}: TlsOptions = {}): Promise<TlsPostgres> {
  const kind = encryptedOnly ? 'hostssl' : 'host'
  const authority = await makeAuthority()
  const { cert, key } = await authority.certify(...names)
  const server = await withPackagedPostgres({
    settings: { ssl: 'on' },
    hba: [`${kind} all all 127.0.0.1/32 scram-sha-256`],
    prepare: async (dataDir) => {
      await fs.copyFile(cert, path.join(dataDir, 'server.crt'))
      await fs.copyFile(key, path.join(dataDir, 'server.key'))
      await fs.chmod(path.join(dataDir, 'server.key'), 0o600)
    },
  })
  return {
    ...server,
    authority,
    urlWith: (parameters, host = '127.0.0.1') => {
      const url = new URL(server.url)
      url.hostname = host
      for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value)
      return url.href
    },
  }
}
