import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { onTestFinished } from 'vitest'
import { freePort } from '../provider/support/free-port.ts'
import { eventually } from './eventually.ts'
import { own, serverUser } from './packaged-postgres.ts'

const program = '/usr/sbin/pgbouncer'

/** Where Debian's package `pgbouncer` is installed. */
export async function hasPgBouncer(): Promise<boolean> {
  return fs.access(program, fs.constants.X_OK).then(
    () => true,
    () => false,
  )
}

export type Bouncer = { port: number; start: () => Promise<void>; kill: () => Promise<void> }

/** PgBouncer before the server on this port, with the file that docs/postgres.md prints; for these users. */
export async function withPgBouncer(upstream: number, userlist: string): Promise<Bouncer> {
  const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-bouncer-'))
  const port = await freePort()
  const page = await fs.readFile(path.resolve(import.meta.dirname, '../../docs/postgres.md'), 'utf8')
  let [, ini = ''] = /^```ini\n([^]*?)^```/m.exec(page) ?? []
  const users = path.join(folder, 'userlist.txt')
  const replaced = {
    'port=5432': `port=${upstream}`,
    'listen_addr = *': `listen_addr = 127.0.0.1\nlisten_port = ${port}\nunix_socket_dir =`,
    '/etc/pgbouncer/userlist.txt': users,
  }
  for (const [from, to] of Object.entries(replaced)) {
    if (!ini.includes(from)) throw new Error(`the file of PgBouncer in docs/postgres.md has no ${from}`)
    ini = ini.replace(from, to)
  }
  const file = path.join(folder, 'pgbouncer.ini')
  await fs.writeFile(file, ini)
  await fs.writeFile(users, userlist)
  const owner = await serverUser()
  await own(folder, owner)
  let child: ChildProcess | undefined
  const bouncer: Bouncer = {
    port,
    start: async () => {
      child = spawn(program, ['--quiet', file], { ...owner, cwd: folder, stdio: 'ignore' })
      await eventually(async () => {
        const socket = net.connect(port, '127.0.0.1')
        await once(socket, 'connect')
        socket.destroy()
        return true
      })
    },
    kill: async () => {
      if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
      const gone = once(child, 'exit')
      child.kill('SIGKILL')
      await gone
    },
  }
  onTestFinished(async () => {
    await bouncer.kill()
    await fs.rm(folder, { recursive: true, force: true })
  })
  await bouncer.start()
  return bouncer
}
