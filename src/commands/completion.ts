import { UsageError, type Command, type Entry } from './usage.ts'

const shells = ['bash', 'zsh']

type Described = { name: string; summary: string; command: Command }

/** The command that prints the completion of `commands`, itself among them: from what each of them parses by. */
export function completionCommand(commands: Readonly<Record<string, Entry>>): Command {
  return {
    help: `
mediadock completion bash|zsh

Prints what makes the shell complete commands, their options, and the values of options that
take a few. Read it where the shell starts, so that it is always that of the version installed:

  source <(mediadock completion bash)     # in ~/.bashrc
  source <(mediadock completion zsh)      # in ~/.zshrc, after compinit
`,
    options: {},
    words: shells,
    run: async ([shell = '', ...more]) => {
      if (!shells.includes(shell) || more.length > 0)
        throw new UsageError(`completion takes one of ${shells.join(', ')}`)
      const described = await Promise.all(
        Object.entries(commands).map(async ([name, { summary, load }]) => ({ name, summary, command: await load() })),
      )
      process.stdout.write(`${whatMayFollow(described)}\n${shell === 'bash' ? bash : zsh(described)}`)
      return 0
    },
  }
}

/**
 * A function that both shells understand: given the words before the one that is typed, it prints
 * what may come now, one a line. After an option with a value of any kind that is nothing.
 */
function whatMayFollow(described: readonly Described[]): string {
  const names = described.map(({ name }) => name)
  const options = described.flatMap(({ name, command }) =>
    Object.entries(command.options).map(([option, { type, values }]) => ({ is: `${name} --${option}`, type, values })),
  )
  const valued = options.filter(({ type }) => type === 'string').map(({ is }) => is)
  return `_mediadock_next() {
  local command="\${1-}" said='' option='' word
  if [ "$#" -eq 0 ]; then
    ${print([...names, 'help', '--help', '--version'])}
    return
  fi
  shift
  for word in "$@"; do
    if [ -n "$option" ]; then option=''; continue; fi
    case "$command $word" in
      ${valued.map(quoted).join('|')}) option="$word" ;;
      *' -'*) ;;
      *) said="$said\${said:+ }$word" ;;
    esac
  done
  if [ -n "$option" ]; then
    case "$command $option" in
${options.flatMap(({ is, values }) => (values ? [`      ${quoted(is)}) ${print(values)} ;;`] : [])).join('\n')}
    esac
    return
  fi
  case "$command|$said" in
${described.flatMap(({ name, command }) => steps(command.words ?? []).map(([said, next]) => `    ${quoted(`${name}|${said}`)}) ${print(next)} ;;`)).join('\n')}
  esac
  case "$command" in
${described.map(({ name, command }) => `    ${quoted(name)}) ${print([...Object.keys(command.options), 'help'].map((option) => `--${option}`))} ;;`).join('\n')}
  esac
}
`
}

/** Of `keys list`, `keys create` and `cancel`: after nothing `keys` or `cancel`, after `keys` the other two. */
function steps(phrases: readonly string[]): [said: string, next: string[]][] {
  const next = new Map<string, string[]>()
  for (const phrase of phrases) {
    const words = phrase.split(' ')
    words.forEach((word, at) => {
      const said = words.slice(0, at).join(' ')
      next.set(said, [...new Set([...(next.get(said) ?? []), word])])
    })
  }
  return [...next]
}

function print(words: readonly string[]): string {
  return `printf '%s\\n' ${words.map(quoted).join(' ')}`
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`
}

// bash makes three words of --state=parked; what is completed is the last.
const bash = `_mediadock() {
  local current="\${COMP_WORDS[COMP_CWORD]}" at
  local -a before=()
  for ((at = 1; at < COMP_CWORD; at += 1)); do
    if [ "\${COMP_WORDS[at]}" != '=' ]; then before+=("\${COMP_WORDS[at]}"); fi
  done
  if [ "$current" = '=' ]; then current=''; fi
  COMPREPLY=($(compgen -W "$(_mediadock_next "\${before[@]}")" -- "$current"))
}
complete -F _mediadock mediadock
`

function zsh(described: readonly Described[]): string {
  const summaries = described.map(({ name, summary }) => quoted(`${name}:${summary}`)).join(' ')
  return `_mediadock() {
  local -a before next commands
  if ((CURRENT == 2)) && [[ "$PREFIX" != -* ]]; then
    commands=(${summaries})
    _describe command commands
    return
  fi
  before=("\${(@)words[2,CURRENT-1]}")
  if [[ "$PREFIX" == --*=* ]]; then
    before+=("\${PREFIX%%=*}")
    compset -P 1 '*='
  fi
  next=(\${(f)"$(_mediadock_next "\${(@)before}")"})
  compadd -a next
}
compdef _mediadock mediadock
`
}
