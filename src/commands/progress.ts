/**
 * Shows progress on a terminal's stderr when work takes longer than a second: one line with the text that `say` last
 * received and the elapsed seconds. The line is erased when the work ends.
 */
export async function withProgress<T>(what: string, work: (say: (words: string) => void) => Promise<T>): Promise<T> {
  const { stderr } = process
  if (!stderr.isTTY) return work(() => {})
  const started = performance.now()
  let said = what
  let shown = false
  const show = () => {
    const elapsedMs = performance.now() - started
    if (elapsedMs < 1000) return
    shown = true
    const line = `${said}, ${Math.floor(elapsedMs / 1000)} s`
    // A wrapped line cannot be erased. A terminal of unknown width reports 0.
    stderr.write(`\r\u001b[K${line.slice(0, (stderr.columns || 80) - 1)}`)
  }
  const beat = setInterval(show, 500)
  try {
    return await work((words) => {
      said = words
    })
  } finally {
    clearInterval(beat)
    if (shown) stderr.write('\r\u001b[K')
  }
}
