import path from 'node:path'
import { expect, it } from 'vitest'
import { childEnv } from '../support/child-env.ts'
import { startProcess } from './support/processes.ts'

const script = path.join(import.meta.dirname, 'support/uncaught.ts')

it.each(['rejection', 'exception'])(
  'an uncaught %s is logged in one line without values and causes an orderly stop',
  async (fault) => {
    const program = startProcess(process.execPath, [script, fault], { env: childEnv })
    expect(await program.exit).toEqual({ code: 1, signal: null })
    const lines = program.output().trim().split('\n')
    const logged = lines
      .filter((line) => line.startsWith('{'))
      .map((line): { level: string; msg: string; err: { message: string } } => JSON.parse(line))
    expect(logged.map(({ level, msg }) => ({ level, msg }))).toEqual(
      logged.map(() => ({ level: 'fatal', msg: 'uncaught error: stopping' })),
    )
    expect(logged[0]?.err.message).toMatch(/^not /)
    expect(lines.filter((line) => line.startsWith('stopped:'))).toHaveLength(1)
    expect(lines).toHaveLength(logged.length + 1)
    expect(program.output()).not.toContain('whsec_secret')
  },
)
