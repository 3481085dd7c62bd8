import fs from 'node:fs'
import path from 'node:path'

// `npm run check:columns`: the formatter leaves strings, SQL and comments as they are, so their length is checked here.

const columns = 120
/** Lines that were longer when the rule began. Lower this number as they go; never raise it. */
const allowed = 356

const src = path.resolve(import.meta.dirname, '../src')
const files = fs.readdirSync(src, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'))
const tooLong = files.flatMap((file) =>
  fs
    .readFileSync(path.join(src, file), 'utf8')
    .split('\n')
    .flatMap((line, at) => (line.length > columns ? [`src/${file}:${at + 1}: ${line.length} columns`] : [])),
)
if (tooLong.length > allowed) {
  process.stderr.write(`${tooLong.join('\n')}\n${tooLong.length} lines exceed ${columns} columns, ${allowed} may.\n`)
  process.exitCode = 1
}
