import fs from 'node:fs/promises'
import path from 'node:path'
import { expect, it } from 'vitest'
import { z } from 'zod'
import { commands } from '../../src/commands/index.ts'

// Pages that are written from the code: `npx vitest run -u --config test/vitest.config.ts rules/pages`.

const root = path.resolve(import.meta.dirname, '../..')
const page = (name: string) => path.join(root, 'docs', name)

const operationSchema = z.object({
  tags: z.array(z.string()),
  summary: z.string(),
  description: z.string().optional(),
  parameters: z.array(z.object({ name: z.string().optional(), in: z.string().optional() })).default([]),
  requestBody: z
    .object({ content: z.record(z.string(), z.object({ schema: z.object({ $ref: z.string().optional() }).loose() })) })
    .optional(),
})
const documentSchema = z.object({ paths: z.record(z.string(), z.record(z.string(), operationSchema)) })

it('docs/api.md lists every call of the OpenAPI document', async () => {
  const { paths } = documentSchema.parse(
    JSON.parse(await fs.readFile(path.join(root, 'openapi/receiver.json'), 'utf8')),
  )
  const calls = Object.entries(paths).flatMap(([at, methods]) =>
    Object.entries(methods).map(([method, call]) => ({ ...call, call: `${method.toUpperCase()} ${at}` })),
  )
  const sections = [...new Set(calls.flatMap(({ tags }) => tags))].map((tag) => {
    const rows = calls
      .filter(({ tags }) => tags.includes(tag))
      .map(({ call, summary, description = '', parameters }) => {
        const query = parameters.flatMap(({ name, in: place }) => (place === 'query' && name ? [`\`${name}\``] : []))
        const text = `${summary}. ${description}`.replaceAll('|', '\\|').trim()
        return `| \`${call}\` | ${text} | ${query.join(' ')} |`
      })
    return `## ${tag}\n\n| call | does | query |\n|---|---|---|\n${rows.join('\n')}\n`
  })
  await expect(`# The JSON API

Every call of the internal listener, from its OpenAPI document. The running receiver serves the whole document with schemas and examples at \`/api/openapi.json\`, and a page to try it at \`/docs\`. Where a token is set, send \`Authorization: Bearer <INTERNAL_TOKEN>\`. Errors have [one envelope](errors.md#the-json-api). Lists answer \`{"data":[…],"next_cursor":…}\`, newest first; \`cursor\` continues. \`limit\` is 50 unless given, at most 200.

${sections.join('\n')}`).toMatchFileSnapshot(page('api.md'))
})

it('docs/cli.md prints the help of every command', async () => {
  const helps = await Promise.all(
    Object.entries(commands).map(async ([name, { load }]) => {
      const { help } = (await load()).command
      return `## ${name}\n\`\`\`\n${help.trim()}\n\`\`\`\n`
    }),
  )
  await expect(`# The command line

\`npx mediadock <command>\`, or \`mediadock <command>\` where the package is installed globally. \`--help\` prints the same. Subscriptions have no command: manage them [in the console or with the API](subscriptions.md#add-one).

## Where to run it

Commands read the settings of a receiver (\`provider …\`: of a provider) from the environment. They do not read \`.env\`. On a laptop they find the database of the \`mediadock start\` in the same folder.

| receiver | command |
|---|---|
| systemd, as root | \`cd /opt/mediadock && node_modules/.bin/node --env-file=/etc/mediadock/receiver.env bin/mediadock.js status\` |
| compose | \`docker compose exec mediadock-1 node bin/mediadock.js status\` |
| Docker | \`docker exec mediadock node bin/mediadock.js status\` |
| Kubernetes | \`kubectl --namespace mediadock exec deployment/mediadock -- node bin/mediadock.js status\` |

## Exit codes

| code | meaning | do |
|---|---|---|
| 0 | done; of \`start\`: stopped by a signal | |
| 1 | failed; the output says why. Of \`status\`: a problem is critical, or no receiver has run for two minutes. Of \`start\`: waiting would not help (a wrong password, a missing database or right), or a second signal | fix what the output says; a supervisor may restart |
| 2 | wrong usage | see \`--help\` |
| 78 | wrong settings, all listed by name | fix the settings; a supervisor must not restart |

${helps.join('\n')}`).toMatchFileSnapshot(page('cli.md'))
})
