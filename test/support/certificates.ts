import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { onTestFinished } from 'vitest'

const run = promisify(execFile)

export type Authority = {
  /** The file of its root certificate. */
  root: string
  /** A key and a certificate for these names, as `DNS:localhost` or `IP:127.0.0.1`. */
  certify: (...names: string[]) => Promise<{ cert: string; key: string }>
}

/** An authority of the test's own, by the openssl that every packaged PostgreSQL comes with. */
export async function makeAuthority(): Promise<Authority> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-certificates-'))
  onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
  const at = (name: string) => path.join(folder, name)
  const newKey = ['req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes']
  await run('openssl', [
    ...newKey,
    '-x509',
    '-days',
    '2',
    '-subj',
    '/CN=root of the tests',
    '-keyout',
    at('root.key'),
    '-out',
    at('root.crt'),
  ])
  let made = 0
  return {
    root: at('root.crt'),
    certify: async (...names) => {
      made += 1
      const [key, request, cert, extensions] = ['key', 'csr', 'crt', 'ext'].map((suffix) => at(`${made}.${suffix}`))
      if (!key || !request || !cert || !extensions) throw new Error('no file names')
      await fs.writeFile(extensions, `subjectAltName=${names.join(',')}\n`)
      await run('openssl', [...newKey, '-subj', '/CN=server of the tests', '-keyout', key, '-out', request])
      await run('openssl', [
        'x509',
        '-req',
        '-days',
        '2',
        '-in',
        request,
        '-CA',
        at('root.crt'),
        '-CAkey',
        at('root.key'),
        '-CAcreateserial',
        '-extfile',
        extensions,
        '-out',
        cert,
      ])
      return { cert, key }
    },
  }
}
