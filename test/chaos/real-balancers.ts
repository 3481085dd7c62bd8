import { spawn } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import { freePort } from '../provider/support/free-port.ts'
import { makeAuthority } from '../support/certificates.ts'
import { childEnv } from '../support/child-env.ts'
import { eventually } from '../support/eventually.ts'

const ops = path.resolve(import.meta.dirname, '../../ops')

export const balancerKinds = ['nginx', 'haproxy'] as const
type BalancerKind = (typeof balancerKinds)[number]

/** The installed balancers, with the paths of their programs. A separate source address needs Linux. */
export async function findBalancers(): Promise<{ kind: BalancerKind; program: string }[]> {
  if (process.platform !== 'linux') return []
  const found = await Promise.all(balancerKinds.map(async (kind) => ({ kind, program: await findBalancer(kind) })))
  return found.flatMap(({ kind, program }) => (program === undefined ? [] : [{ kind, program }]))
}

async function findBalancer(kind: BalancerKind): Promise<string | undefined> {
  for (const folder of [...childEnv.PATH.split(':'), '/usr/sbin', '/usr/local/sbin']) {
    const file = path.join(folder, kind)
    if (
      await fs.access(file, fs.constants.X_OK).then(
        () => true,
        () => false,
      )
    )
      return file
  }
  return undefined
}

export type BalancerProcess = {
  url: string
  ca: string
  /**
   * How many requests went to a second receiver, since the first did not answer. Those that nginx could not
   * connect are not counted: it has no other way to notice that one is gone.
   */
  inVain: () => Promise<number>
  /** True if it sends to the receiver of this place. nginx tries each, always. */
  sendsTo: (at: number) => boolean
}

/** The program with its file of `ops/`, of which only addresses, the certificate and the places to write are others. */
export async function startBalancer(
  kind: BalancerKind,
  program: string,
  receivers: readonly string[],
): Promise<BalancerProcess> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), `mediadock-${kind}-`))
  const authority = await makeAuthority()
  const { cert, key } = await authority.certify('IP:127.0.0.1')
  const pem = path.join(folder, 'hooks.pem')
  await fs.writeFile(pem, (await fs.readFile(cert, 'utf8')) + (await fs.readFile(key, 'utf8')))
  const port = await freePort()
  const replaced: Record<BalancerKind, Record<string, string>> = {
    nginx: {
      'listen 443': `listen 127.0.0.1:${port}`,
      '/var/log/nginx': folder,
      '/etc/nginx/tls/hooks.crt': cert,
      '/etc/nginx/tls/hooks.key': key,
      // Where this user may write.
      'http {': `pid ${folder}/pid; http { ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((what) => `${what}_temp_path ${folder}/${what};`).join(' ')}`,
    },
    haproxy: { 'bind :443': `bind 127.0.0.1:${port}`, '/etc/haproxy/tls/hooks.pem': pem },
  }
  const name = { nginx: 'nginx.conf', haproxy: 'haproxy.cfg' }[kind]
  let text = await fs.readFile(path.join(ops, name), 'utf8')
  const addresses = Object.fromEntries(
    receivers.map((url, at) => [` mediadock-${at + 1}:3000`, ` ${new URL(url).host}`]),
  )
  for (const [from, to] of Object.entries({ ...replaced[kind], ...addresses })) {
    if (!text.includes(from)) throw new Error(`${name} has no ${from}`)
    text = text.replaceAll(from, to)
  }
  const file = path.join(folder, name)
  await fs.writeFile(file, text)
  const args = kind === 'nginx' ? ['-p', folder, '-c', file, '-g', 'daemon off;'] : ['-db', '-f', file]
  const child = spawn(program, args, { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] })
  let log = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (log += chunk.toString()))
  onTestFinished(async () => {
    if (child.exitCode === null) {
      child.kill('SIGTERM')
      await once(child, 'exit')
    }
    await fs.rm(folder, { recursive: true, force: true })
  })
  const inVain = async () => {
    if (kind === 'haproxy') return [...log.matchAll(/"retries":"\+?[1-9]/g)].length
    const lines = await fs.readFile(path.join(folder, 'access.log'), 'utf8')
    return [...lines.matchAll(/"receiver_bytes":"[1-9]\d*, /g)].length
  }
  const sendsTo = (at: number) => {
    const changes = [...log.matchAll(/Server mediadock\/mediadock-(\d+) is (UP|DOWN)/g)]
    return changes.findLast(([, place]) => Number(place) === at + 1)?.[2] !== 'DOWN'
  }
  await eventually(async () => {
    if (child.exitCode !== null) throw new Error(`${kind} ended with ${child.exitCode}: ${log}`)
    const socket = net.connect(port, '127.0.0.1')
    await once(socket, 'connect')
    socket.destroy()
    return true
  })
  return { url: `https://127.0.0.1:${port}`, ca: await fs.readFile(authority.root, 'utf8'), inVain, sendsTo }
}
