import { execFile } from 'node:child_process'
import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'

const root = path.resolve(import.meta.dirname, '../..')
const depcruise = path.join(root, 'node_modules/dependency-cruiser/bin/dependency-cruiser.mjs')

/** Imports that are planted in a copy of the code, at any depth, as a value or a type. */
const bad: readonly [string, string][] = [
  ['wire', 'receiver/domain/delivery.ts'],
  ['wire', 'platform/logger.ts'],
  ['platform/http', 'wire/signature.ts'],
  ['platform/postgres', 'platform/pages/access.ts'],
  ['pages', 'receiver/domain/keys.ts'],
  ['receiver/landing', 'provider/engines/engine.ts'],
  ['receiver/api', 'provider/accounts/keys.ts'],
  ['receiver/queries', 'receiver/console/parts/parts.ts'],
  ['receiver/queries', 'receiver/api/operation.ts'],
  ['receiver/queries', 'receiver/on-call/problems.ts'],
  ['receiver/landing', 'receiver/intake/accept.ts'],
  ['receiver/landing', 'receiver/reconciling/reconciler.ts'],
  ['receiver/landing', 'receiver/queries/filters.ts'],
  ['receiver/landing', 'receiver/sources/generation-queue/source.ts'],
  ['receiver/intake', 'receiver/sources/keys.ts'],
  ['receiver/fetching', 'receiver/landing/land-batch.ts'],
  ['receiver/intake', 'receiver/landing/land-batch.ts'],
  ['receiver/intake', 'receiver/program.ts'],
  ['receiver/domain', 'receiver/settings.ts'],
  ['provider/queue', 'receiver/on-call/problems.ts'],
  ['provider/accounts', 'receiver/console/parts/parts.ts'],
  ['provider/accounts', 'provider/queue/job.ts'],
  ['provider/engines/artwork', 'provider/queue/job.ts'],
  ['provider/webhooks', 'provider/submit/submit.ts'],
  ['receiver/console/parts', 'provider/domain/faults.ts'],
  ['receiver/console/parts', 'receiver/console/requests/request-page.ts'],
  ['receiver/console/now', 'start/start.ts'],
  ['console', 'laptop/local.ts'],
  ['laptop', 'start/start.ts'],
  ['commands', 'cli.ts'],
  ['a-new-room', 'wire/signature.ts'],
  ['receiver/a-new-room', 'receiver/domain/keys.ts'],
]

describe('a planted import', () => {
  let violations: { from: string; to: string }[]

  beforeAll(async () => {
    const copy = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-imports-'))
    await fs.cp(path.join(root, 'src'), path.join(copy, 'src'), { recursive: true })
    await fs.cp(path.join(root, 'package.json'), path.join(copy, 'package.json'))
    await fs.symlink(path.join(root, 'node_modules'), path.join(copy, 'node_modules'))
    for (const [at, [room, target]] of bad.entries()) await plant(copy, room, target, at)
    violations = await cruise(copy)
    await fs.rm(copy, { recursive: true })
  })

  it.each(bad.map(([room, target], at) => [room, target, at] as const))('%s → %s is refused', (room, target, at) => {
    expect(violations.filter(({ from }) => from === `src/${room}/planted-${at}.ts`).map(({ to }) => to)).toContain(
      `src/${target}`,
    )
  })

  it('of drizzle-orm is refused outside drizzle.ts, but its types are allowed', () => {
    const from = violations.filter(({ to }) => to.includes('/drizzle-orm/')).map((violation) => violation.from)
    expect(from.sort()).toEqual(['src/wire/planted-drizzle-later.ts', 'src/wire/planted-drizzle.ts'])
  })

  it('that forms a cycle is refused, and no other import is reported', () => {
    expect(violations).toContainEqual(
      expect.objectContaining({ from: 'src/wire/planted-circle-a.ts', to: 'src/wire/planted-circle-b.ts' }),
    )
    expect(violations.filter(({ from }) => !from.includes('/planted-'))).toEqual([])
  })
})

/** Every other one is of types only, which no runtime sees. */
async function plant(copy: string, room: string, target: string, at: number): Promise<void> {
  const folder = path.join(copy, 'src', room)
  await fs.mkdir(folder, { recursive: true })
  const from = path.relative(folder, path.join(copy, 'src', target))
  const specifier = from.startsWith('.') ? from : `./${from}`
  await fs.writeFile(
    path.join(folder, `planted-${at}.ts`),
    `import ${at % 2 === 0 ? 'type ' : ''}* as planted from '${specifier}'\nexport type Planted = typeof planted\n`,
  )
  if (at > 0) return
  await fs.writeFile(
    path.join(copy, 'src/wire/planted-circle-a.ts'),
    "import { b } from './planted-circle-b.ts'\nexport const a = b\n",
  )
  await fs.writeFile(
    path.join(copy, 'src/wire/planted-circle-b.ts'),
    "import { a } from './planted-circle-a.ts'\nexport const b = a\n",
  )
  await fs.writeFile(
    path.join(copy, 'src/wire/planted-drizzle.ts'),
    "import { sql } from 'drizzle-orm'\nexport const one = sql`1`\n",
  )
  await fs.writeFile(
    path.join(copy, 'src/wire/planted-drizzle-later.ts'),
    "export const pg = () => import('drizzle-orm/pg-core')\n",
  )
  await fs.writeFile(
    path.join(copy, 'src/wire/planted-drizzle-type.ts'),
    "import type { SQL } from 'drizzle-orm'\nexport type One = SQL\n",
  )
}

async function cruise(copy: string): Promise<{ from: string; to: string }[]> {
  const report = path.join(copy, 'report.json')
  const args = [
    depcruise,
    'src',
    '--config',
    path.join(root, 'test/rules/.dependency-cruiser.mjs'),
    '--output-type',
    'json',
    '--output-to',
    report,
  ]
  // It ends with the number of violations, which are what is looked for.
  await promisify(execFile)(process.execPath, args, { cwd: copy }).catch((error: unknown) => error)
  const { summary }: { summary: { violations: { from: string; to: string }[] } } = JSON.parse(
    await fs.readFile(report, 'utf8'),
  )
  return summary.violations
}
