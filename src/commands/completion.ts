import { UsageError, type Command, type Entry } from './usage.ts'

const shells = ['bash', 'zsh']

type Described = { name: string; summary: string; command: Command }

/** Creates the command that prints shell completion for `commands`, from the options that each command parses. */
export function completionCommand(commands: Readonly<Record<string, Entry>>): Command {
  return {
    help: `
mediadock completion bash|zsh

Prints a script that completes commands, options and their values. Load it when the shell starts,
so that it always matches the installed version:

  source <(mediadock completion bash)     # in ~/.bashrc
  source <(mediadock completion zsh)      # in ~/.zshrc, after compinit
`,
    options: {},
    words: shells,
    run: async ([shell = '', ...more]) => {
      if (!shells.includes(shell) || more.length > 0)
        throw new UsageError(`completion takes one of ${shells.join(', ')}`)
      const described = await Promise.all(
        Object.entries(commands).map(async ([name, { summary, load }]) => ({ name, summary, ...(await load()) })),
      )
      process.stdout.write(`${whatMayFollow(described)}\n${shell === 'bash' ? bash : zsh(described)}`)
      return 0
    },
  }
}

/**
 * Returns a shell function for bash and zsh. It takes the words before the current one and prints the possible next
 * words, one per line. It prints nothing after an option that takes free text.
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
${described.flatMap(wordCases).join('\n')}
  esac
  case "$command" in
${described.map(optionCase).join('\n')}
  esac
}
`
}

function wordCases({ name, command: { words = [] } }: Described): string[] {
  return steps(words).map(([said, next]) => `    ${quoted(`${name}|${said}`)}) ${print(next)} ;;`)
}

function optionCase({ name, command }: Described): string {
  const options = [...Object.keys(command.options), 'help'].map((option) => `--${option}`)
  return `    ${quoted(name)}) ${print(options)} ;;`
}

/**
 * For each prefix of the phrases, the words that may follow. `keys list` and `cancel` give: '' → keys, cancel; keys →
 * list.
 */
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

// bash splits --state=parked into three words and completes the last one.
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
