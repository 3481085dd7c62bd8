import { execFileSync } from 'node:child_process'
import fs from 'node:fs/promises'
import path from 'node:path'

// `npm run build`, also run by `npm pack`: compiles src/ into dist/, because Node runs no TypeScript below
// node_modules. The layout is the same, so code finds files beside it in both.

const root = path.resolve(import.meta.dirname, '..')
const [from, to] = [path.join(root, 'src'), path.join(root, 'dist')]
// Several threads would each check the files that they share, which takes twice the work.
const tsc = (project: string) =>
  execFileSync(
    process.execPath,
    [path.join(root, 'node_modules/typescript/bin/tsc'), '--singleThreaded', '-p', path.join(root, project)],
    {
      stdio: 'inherit',
    },
  )

await fs.rm(to, { recursive: true, force: true })
tsc('tsconfig.build.json')
// Only the client is imported by others, so only it needs types.
tsc('tsconfig.client.json')
// Assets of pages and samples.
await fs.cp(from, to, {
  recursive: true,
  filter: (file) => !file.endsWith('.ts') && !path.basename(file).startsWith('.'),
})
