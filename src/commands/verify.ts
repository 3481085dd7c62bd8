import { createLogger } from '../platform/logger.ts'
import { createKeySets } from '../receiver/intake/key-sets.ts'
import { verifyQuarantine } from '../receiver/on-call/verify-quarantine.ts'
import { auditedCommand } from './audited-command.ts'
import { withReceiver } from './processing.ts'
import { defineCommand, printJson } from './usage.ts'

export const command = defineCommand({
  help: `
mediadock verify [--reason R] [--json]

Verifies refused webhooks in the quarantine again with the secrets that are configured now
(GENERATION_KEYS, GENERATION_KEYS_FILE, SOURCES_FILE), and accepts the authentic ones. Use it after
adding a missing secret. The window of five minutes is judged by the time of arrival. A running receiver lands them.

  mediadock verify --reason no_matching_secret
`,
  options: { reason: { type: 'string' }, json: { type: 'boolean' } },
  run: ({ reason, json }, _words, env) =>
    withReceiver(env, async ({ db, settings, interrupted: cut }) => {
      const keySets = createKeySets({ fetch, clock: () => new Date(), logger: createLogger('warn'), cut })
      await keySets.runOnce(settings.keys)
      const deps = { db, keys: () => keySets.apply(settings.keys), wake: () => {} }
      const verified = await auditedCommand({
        db,
        action: 'verify_quarantine',
        target: reason,
        detailOf: (counts) => counts,
        work: () => verifyQuarantine(deps, { reason }),
      })
      const { checked, accepted, refused } = verified
      if (json) printJson(verified)
      else process.stdout.write(`verified ${checked} again: ${accepted} accepted, ${refused} refused as before\n`)
      return 0
    }),
})
