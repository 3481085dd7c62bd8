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

/** A packaged server that takes nobody without TLS, with a certificate for these names. */
export async function withTlsPostgres({ names = ['DNS:localhost', 'IP:127.0.0.1'], settings = {} }: { names?: string[]; settings?: Record<string, string> } = {}): Promise<TlsPostgres> {
  const authority = await makeAuthority()
  const { cert, key } = await authority.certify(...names)
  const server = await withPackagedPostgres({
    settings: { ssl: 'on', ...settings },
    hba: ['hostssl all all 127.0.0.1/32 scram-sha-256', 'hostssl replication all 127.0.0.1/32 scram-sha-256'],
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
