import { spawnSync } from 'node:child_process'
import { beforeAll, describe, expect, it } from 'vitest'
import { commands } from '../../src/commands/index.ts'
import { deliveryOutcomes, deliveryStates } from '../../src/receiver/queries/filters.ts'
import { mediadock, mediadockHere } from './mediadock.ts'

const names = Object.keys(commands)
const starts = (text: string) => (word: string) => word.startsWith(text)

/** The typed words, the last one incomplete, and the expected completions. */
const typed: readonly [words: string[], next: string[]][] = [
  [['re'], names.filter(starts('re'))],
  [['deliveries', '--state', ''], [...deliveryStates]],
  [['deliveries', '--json', '--outcome', 'l'], deliveryOutcomes.filter(starts('l'))],
  [['deliveries', '--reason', ''], []],
  [['deliveries', '--reason', 'x', '--web'], ['--webhook-id']],
  [['replay', '--dry'], ['--dry-run']],
  [
    ['provider', '--account', 'a', 'keys', ''],
    ['create', 'list', 'revoke', ...providerOptions()],
  ],
  [['provider', 'keys', 'create', '--environment', 's'], ['sandbox']],
  [['trigger', 'bad'], ['bad-signature']],
  [['start', 'p'], ['provider']],
  [
    ['completion', ''],
    ['bash', 'zsh', '--help'],
  ],
  [['nothing', ''], []],
]

function providerOptions(): string[] {
  return ['account', 'name', 'environment', 'scopes', 'credits', 'json', 'help'].map((name) => `--${name}`)
}

/** Returns the shell's completions of each line. `how` calls the function as the shell's line editor does. */
function complete(shell: string, script: string, how: string, lines: readonly string[][]): string[][] {
  const each = lines.map((words) => `${how} ${words.map((word) => `'${word}'`).join(' ')}; printf '==\\n'`)
  const flags = shell === 'zsh' ? ['-f', '-c'] : ['--norc', '-c']
  const ran = spawnSync(shell, [...flags, [script, ...each].join('\n')], { encoding: 'utf8' })
  expect({ stderr: ran.stderr, status: ran.status }).toEqual({ stderr: '', status: 0 })
  return ran.stdout
    .split('==\n')
    .slice(0, -1)
    .map((part) => part.split('\n').filter(Boolean))
}

describe.skipIf(spawnSync('bash', ['--version']).error)('mediadock completion bash', () => {
  let script: string
  beforeAll(async () => void (script = (await mediadock({}, 'completion', 'bash')).stdout))
  const how = `
ask() {
  COMP_WORDS=(mediadock "$@"); COMP_CWORD=$#; COMPREPLY=(); _mediadock
  printf '%s\\n' "\${COMPREPLY[@]}"
}
set -u
ask`

  it('offers commands, options and values where they are known', () => {
    expect(
      complete(
        'bash',
        script,
        how,
        typed.map(([words]) => words),
      ),
    ).toEqual(typed.map(([, next]) => next))
  })

  it('offers values after an equals sign, which bash treats as a word', () => {
    const lines = [
      ['requests', '--status', '=', 'F'],
      ['requests', '--status', '='],
    ]
    expect(complete('bash', script, how, lines)).toEqual([
      ['FAILED'],
      ['IN_QUEUE', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'CANCELED'],
    ])
  })

  it('is registered for mediadock', () => {
    expect(spawnSync('bash', ['--norc', '-c', `${script}\ncomplete -p mediadock`], { encoding: 'utf8' }).stdout).toBe(
      'complete -F _mediadock mediadock\n',
    )
  })
})

describe.skipIf(spawnSync('zsh', ['--version']).error)('mediadock completion zsh', () => {
  let script: string
  beforeAll(async () => void (script = (await mediadockHere({}, 'completion', 'zsh')).stdout))
  // The functions of zsh's completion system that the script calls.
  const system = `
compdef() { }
compset() { PREFIX="\${PREFIX#*=}" }
offer() { local one; for one in "$@"; do [[ "$one" == "$PREFIX"* ]] && print -r -- "$one"; done; true }
compadd() { offer "\${(@P)2}" }
_describe() { offer "\${(@)\${(@P)2}%%:*}" }
`
  const how = `ask() { local -a words=(mediadock "$@"); local CURRENT=$(($# + 1)) PREFIX="\${@[-1]}"; _mediadock }
ask`

  it('offers commands, options and values where they are known', () => {
    expect(
      complete(
        'zsh',
        system + script,
        how,
        typed.map(([words]) => words),
      ),
    ).toEqual(typed.map(([, next]) => next))
  })

  it('offers values after an equals sign', () => {
    expect(complete('zsh', system + script, how, [['requests', '--status=F']])).toEqual([['FAILED']])
  })
})

it('mediadock completion accepts only known shells', async () => {
  for (const args of [[], ['fish'], ['bash', 'zsh']])
    expect(await mediadockHere({}, 'completion', ...args)).toMatchObject({ code: 2, stdout: '' })
})

it('--help of a command shows the options that it accepts', async () => {
  const shown = async (name: string) => {
    const { help, options } = (await commands[name]!.load()).command
    const form = /^[^]*?\n\n/.exec(help.trimStart())?.[0] ?? ''
    return {
      name,
      shown: [...new Set(form.match(/--[a-z][\w-]*/g))].sort(),
      options: Object.keys(options)
        .map((option) => `--${option}`)
        .sort(),
    }
  }
  for (const name of names) {
    const command = await shown(name)
    // Their help refers to another command's filters.
    if (name === 'replay' || name === 'tail') expect(command.options).toEqual(expect.arrayContaining(command.shown))
    else expect(command.shown, name).toEqual(command.options)
  }
})
