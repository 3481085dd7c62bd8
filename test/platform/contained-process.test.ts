import { spawnSync } from 'node:child_process'
import { once } from 'node:events'
import fs from 'node:fs/promises'
import net, { type AddressInfo } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { runContained, type ContainedRun } from '../../src/platform/contained-process.ts'

const limits = { memoryBytes: 268_435_456, cpuSeconds: 10, wallSeconds: 60, outputBytes: 65_536 }
const never = new AbortController().signal
const hasNamespaces = spawnSync('unshare', ['--user', '--net', '--', 'true']).status === 0
const isRoot = process.getuid?.() === 0

async function shell(
  script: string,
  { bounds, ...run }: Partial<ContainedRun> & { bounds?: Partial<typeof limits> } = {},
) {
  let output = ''
  const end = await runContained({
    program: '/bin/sh',
    args: ['-c', script],
    limits: { ...limits, ...bounds },
    memoryLimit: 'address space',
    ownUser: true,
    write: (chunk) => void (output += chunk.toString()),
    signal: never,
    ...run,
  })
  return { end, output }
}

describe.skipIf(process.platform === 'win32')('runContained', () => {
  it('gives the child no environment', async () => {
    vi.stubEnv('SOME_SECRET', 'a secret')
    const { end, output } = await shell('', { program: '/usr/bin/env', args: [] })
    expect({ end, output }).toEqual({ end: { kind: 'ended', code: 0, stderr: '' }, output: '' })
  })

  it.skipIf(!hasNamespaces)(
    "keeps this process's environment from the child (skipped where there are no namespaces)",
    async () => {
      const { output } = await shell(`cat /proc/${process.pid}/environ | wc -c`)
      expect(output.trim()).toBe('0')
    },
  )

  it.skipIf(!hasNamespaces)(
    'keeps the child from a listener on loopback (skipped where there are no namespaces)',
    async () => {
      const server = net.createServer((socket) => socket.destroy()).listen(0, '127.0.0.1')
      onTestFinished(() => void server.close())
      await once(server, 'listening')
      const { port } = server.address() as AddressInfo
      const script = `require('net').connect(${port}, '127.0.0.1').on('connect', () => console.log('connected')).on('error', (e) => console.log(e.code))`
      const dial = { program: process.execPath, args: ['-e', script], memoryLimit: 'data', ownUser: false } as const
      expect((await shell('', { ...dial, bounds: { memoryBytes: 2 ** 30 } })).output.trim()).toBe('ENETUNREACH')
    },
  )

  it.skipIf(!isRoot)('runs the child as another user than root (skipped for other users)', async () => {
    expect((await shell('id -u')).output.trim()).not.toBe('0')
  })

  it('lets the child write no file', async () => {
    const file = path.join(os.tmpdir(), `contained-${process.pid}`)
    onTestFinished(() => fs.rm(file, { force: true }))
    const { end } = await shell(`trap '' XFSZ; echo text > ${file}`)
    expect(end).toMatchObject({ kind: 'ended', code: expect.not.toSatisfy((code) => code === 0) })
  })

  it('passes open descriptors of files that the child cannot open by path', async () => {
    const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'contained-'))
    onTestFinished(() => fs.rm(folder, { recursive: true }))
    await fs.writeFile(path.join(folder, 'input'), 'the content')
    const handle = await fs.open(path.join(folder, 'input'))
    onTestFinished(() => handle.close())
    expect((await shell('cat <&3', { descriptors: [handle.fd] })).output).toBe('the content')
  })

  it.skipIf(process.platform !== 'linux')('refuses memory beyond the limit', async () => {
    const { end } = await shell('exec dd if=/dev/zero of=/dev/null bs=300M count=1')
    expect(end).toMatchObject({ kind: 'ended', code: 1, stderr: expect.stringContaining('memory exhausted') })
  })

  it('ends a child that uses more CPU time than it may', async () => {
    expect((await shell('while :; do :; done', { bounds: { cpuSeconds: 1 } })).end).toMatchObject({
      kind: 'ended',
      code: null,
    })
  })

  it.each([
    ['that takes longer than it may', 'sleep 100', { wallSeconds: 0.2 }, 'it did not finish within 0.2 s'],
    ['that writes more than it may', 'yes', { outputBytes: 1000 }, 'it wrote more than 1000 bytes'],
    ['that floods its errors', 'yes >&2', {}, 'it wrote more than 1048576 bytes of errors'],
  ])('ends a child %s', async (_what, script, bounds, why) => {
    expect((await shell(script, { bounds })).end).toEqual({ kind: 'stopped', why })
  })

  it("kills the child's own children too when aborted", async () => {
    const controller = new AbortController()
    let pid = 0
    const write = (chunk: Buffer) => {
      pid = Number(chunk.toString())
      controller.abort(new Error('taken away'))
    }
    const aborted = shell('sleep 100 & echo $!; wait', { write, signal: controller.signal })
    await expect(aborted).rejects.toThrow('taken away')
    await vi.waitFor(async () => expect(await stateOf(pid)).toMatch(/^(?:gone|Z)$/), 60_000)
  })

  it('throws what `write` throws, and leaves no child', async () => {
    const pids: number[] = []
    const write = (chunk: Buffer) => {
      pids.push(Number(chunk.toString()))
      throw new Error('the disk is full')
    }
    await expect(shell('echo $$; sleep 100', { write })).rejects.toThrow('the disk is full')
    expect(await stateOf(pids[0]!)).toBe('gone')
  })

  it('reports a program that cannot be started', async () => {
    expect((await shell('', { program: '/nowhere/ffmpeg', args: [] })).end).toMatchObject({ kind: 'ended', code: 127 })
  })
})

/** The state letter of a process; `gone` where it has been reaped. */
async function stateOf(pid: number): Promise<string> {
  const { stdout } = spawnSync('ps', ['-o', 'stat=', '-p', String(pid)], { encoding: 'utf8' })
  return stdout.trim().slice(0, 1) || 'gone'
}
