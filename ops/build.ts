import { execFileSync } from 'node:child_process'
import fs from 'node:fs/promises'
import path from 'node:path'

// `npm run build`, and so `npm pack`: makes dist/, which is what a package runs, since Node
// runs no TypeScript below node_modules. Laid out as src/ is: whatever looks for a file beside
// the code finds it in both.

const root = path.resolve(import.meta.dirname, '..')
const [from, to] = [path.join(root, 'src'), path.join(root, 'dist')]
// One thread checks half as much as several, which each check what they share.
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
// Types are for those who import the client; nobody imports the rest.
tsc('tsconfig.client.json')
// What pages and samples are made of.
await fs.cp(from, to, {
  recursive: true,
  filter: (file) => !file.endsWith('.ts') && !path.basename(file).startsWith('.'),
})
