import { z } from 'zod'
import { feedFilterQuery, toFeedFilter } from '../receiver/queries/result-filter.ts'
import {
  addSubscription,
  isAct,
  newSubscriptionSchema,
  placeSchema,
  subscriptionActs,
  type FeedPlace,
} from '../receiver/subscriptions/acts.ts'
import { listSubscriptions, type Subscription } from '../receiver/subscriptions/list-subscriptions.ts'
import { actorHere, auditedCommand } from './audited-command.ts'
import { filtersOf, optionsOf, printItems, type TableColumns } from './listing.ts'
import { withReceiver, type WithReceiver } from './processing.ts'
import { defineCommand, printable, printJson, UsageError } from './usage.ts'

type Given = {
  from: FeedPlace | undefined
  retryHours: number | undefined
  url: string | undefined
  filter: Parameters<typeof filtersOf>[1]
}
type Done = Record<string, unknown> | undefined

function add({ db, settings }: WithReceiver, name: string, { url, retryHours, from, filter: given }: Given) {
  const filter = toFeedFilter(filtersOf(feedFilters, given))
  const parsed = newSubscriptionSchema.safeParse({ name, url, retry_hours: retryHours, from, filter })
  if (!parsed.success)
    throw new UsageError(parsed.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join(', '))
  return addSubscription(db, parsed.data, settings)
}

const feedFilters = z.strictObject(feedFilterQuery)

export const command = defineCommand({
  help: `
mediadock subscriptions [list] [--json]
mediadock subscriptions add <name> <url> [--complete true] [--sandbox false] [--key-name N] [--model M]
                                  [--source-name S] [--status COMPLETED|FAILED|CANCELED|REFUSED] [--metadata JSON]
                                  [--retry-hours N] [--from oldest|newest|<position>] [--json]
mediadock subscriptions pause|test|roll|remove <name> [--json]
mediadock subscriptions resume <name> [--from oldest|newest|<position>] [--json]

Each change of a result is posted to the URL, signed with a secret. add and roll print the secret once.
Most results change twice: when they become terminal and when they become complete. --complete true
posts only changes of complete results. Further filters limit the posted changes. --metadata takes a JSON
object that the submitter's metadata must contain. A post without a 2xx answer is retried for --retry-hours
(24), then the subscription stops. add starts with new changes, and resume continues at the old position;
--from sets another position, which skips or repeats changes. test posts a sample that is not a change,
and exits with 1 without a 2xx answer.

  mediadock subscriptions add gallery https://gallery.example.com/changes --sandbox false --complete true
  mediadock subscriptions resume gallery --from oldest
`,
  options: {
    ...optionsOf(feedFilters),
    from: { type: 'string' },
    'retry-hours': { type: 'string' },
    json: { type: 'boolean' },
  },
  takesWords: true,
  run: async ({ json, from, 'retry-hours': hours, ...filter }, words, env) => {
    const [what = 'list', name = '', url, ...more] = words
    if (what === 'list')
      return withReceiver(env, async ({ db }) => printItems(await listSubscriptions(db), columns, json))
    if (what !== 'add' && !isAct(what))
      throw new UsageError('subscriptions takes: list, add, pause, resume, test, roll or remove')
    if (name === '' || more.length > 0 || (url !== undefined) !== (what === 'add'))
      throw new UsageError(`subscriptions ${what} takes ${what === 'add' ? 'a name and a URL' : 'one name'}`)
    const given = { url, filter, from: placeOf(from), retryHours: hours === undefined ? undefined : Number(hours) }
    return withReceiver(env, async (to) => {
      const options = { actor: actorHere(), from: given.from, now: new Date(), signal: to.interrupted }
      const done = await auditedCommand<Done>({
        db: to.db,
        action: `subscription_${what}`,
        target: name,
        detailOf: (result) => result && withoutSecret(result),
        work: () => (what === 'add' ? add(to, name, given) : subscriptionActs[what](to, name, options)),
      })
      if (!done) throw new Error(`subscription ${name} not found`)
      const shown: Record<string, unknown> = { name, ...done }
      if (json) printJson(shown)
      else
        for (const [word, value] of Object.entries(shown))
          process.stdout.write(`${word}: ${printable(String(value))}\n`)
      return done['ok'] === false ? 1 : 0
    })
  },
})

function placeOf(from: string | undefined): FeedPlace | undefined {
  if (from === undefined) return undefined
  const parsed = placeSchema.safeParse(z.coerce.number().safeParse(from).data ?? from)
  if (!parsed.success) throw new UsageError('--from must be oldest, newest or a position of the feed')
  return parsed.data
}

function withoutSecret({ secret: _secret, ...rest }: Record<string, unknown>): Record<string, unknown> {
  return rest
}

const columns: TableColumns<Subscription> = {
  name: ({ name }) => name,
  state: ({ state }) => state,
  backlog: ({ backlog }) => backlog,
  'oldest unsent': (of) => of.oldest_unsent_at,
  position: ({ position }) => position,
  url: ({ url }) => url,
  'last error': ({ last_error }) => last_error,
}
