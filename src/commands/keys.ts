import { parseArgs } from 'node:util'
import { readWithin } from '../receiver/queries/deadline.ts'
import { readKeys } from '../receiver/queries/keys.ts'
import { cell } from './listing.ts'
import { withReceiver } from './processing.ts'
import { printTable } from './terminal.ts'
import { printJson, type Command } from './usage.ts'

const options = { json: { type: 'boolean' } } as const

export const command: Command = {
  help: `
mediadock keys [--json]

Lists the configured keys, and removed keys whose secret has matched before: when each last matched,
the calls that it and its account made in the last minute, the calls left, and until when it makes no calls.
API keys and secrets are not shown. The fingerprint is the beginning of the secret's SHA-256.
`,
  options,
  run: async (args, env) => {
    const { values } = parseArgs({ args, options })
    return withReceiver(env, async ({ db, settings: { keys, fetchRatePerMinute } }) => {
      const states = await readWithin(db, (tx) => readKeys(tx, { keys, fetchRatePerMinute, now: new Date() }))
      if (values.json) states.forEach(printJson)
      else
        printTable(
          [
            'name',
            'environment',
            'state',
            'fingerprint',
            'last match',
            'matches',
            'calls',
            'account calls',
            'left',
            'no calls until',
          ],
          states.map((key) =>
            [
              key.name,
              key.environment,
              key.configured ? (key.retired ? 'retired' : 'in use') : 'removed',
              key.fingerprint,
              key.last_match_at,
              key.matches,
              key.calls,
              key.account_id === null ? null : `${key.account_calls} of ${key.account_limit}`,
              key.quota_left,
              key.blocked_until === null ? null : `${key.blocked_until} (${key.blocked_reason})`,
            ].map(cell),
          ),
        )
      return 0
    })
  },
}
