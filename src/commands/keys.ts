import { readWithin } from '../receiver/queries/deadline.ts'
import { readKeys, type KeyState } from '../receiver/queries/keys.ts'
import { printItems, type TableColumns } from './listing.ts'
import { withReceiver } from './processing.ts'
import { defineCommand } from './usage.ts'

export const command = defineCommand({
  help: `
mediadock keys [--json]

Lists the configured keys, and removed keys whose secret has matched before: when each last matched,
the calls that it and its account made in the last minute, the calls left, and until when it makes no calls.
API keys and secrets are not shown. The fingerprint is the beginning of the secret's SHA-256.
`,
  options: { json: { type: 'boolean' } },
  run: ({ json }, _words, env) =>
    withReceiver(env, async ({ db, settings: { keys, fetchRatePerMinute } }) => {
      const states = await readWithin(db, (tx) => readKeys(tx, { keys, fetchRatePerMinute, now: new Date() }))
      return printItems(states, columns, json)
    }),
})

const columns: TableColumns<KeyState> = {
  name: ({ name }) => name,
  environment: ({ environment }) => environment,
  state: ({ configured, retired }) => (configured ? (retired ? 'retired' : 'in use') : 'removed'),
  fingerprint: ({ fingerprint }) => fingerprint,
  'last match': (key) => key.last_match_at,
  matches: ({ matches }) => matches,
  calls: ({ calls }) => calls,
  'account calls': (key) => (key.account_id === null ? null : `${key.account_calls} of ${key.account_limit}`),
  left: ({ quota_left }) => quota_left,
  'no calls until': ({ blocked_until: until, blocked_reason: reason }) =>
    reason && `${until ?? 'the next one'} (${reason})`,
}
