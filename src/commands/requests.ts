import { readSome } from '../config/config.ts'
import { positiveInt, type ProcessEnvironment } from '../platform/settings.ts'
import { requestFiltersSchema } from '../receiver/queries/filters.ts'
import { listRequests } from '../receiver/queries/requests.ts'
import { listCommand } from './listing.ts'
import type { Command } from './usage.ts'

const listing = listCommand({
  help: `
mediadock requests [--status IN_QUEUE|IN_PROGRESS|COMPLETED|FAILED|CANCELED] [--overdue [true|false]]
                   [--contradiction [true|false]] [--model M] [--key-name N] [--source-name S]
                   [--external-id ID] [--sandbox true|false] [--complete true|false] [--metadata JSON]
                   [--ids ID,ID…] [--since T] [--until T] [--limit N] [--json]

Lists requests, newest first. --json prints one line per request. Times are ISO 8601, or an age like
15m, 2h, 1d. A request without a terminal state is overdue
STUCK_AFTER_SECONDS after it was tracked. --metadata takes a JSON object that the submitter's metadata must
contain. --source-name, --sandbox, --complete and --metadata search the newest 20,000 requests of the range.

  mediadock requests --status FAILED --since 1d --json | jq -r .error_code | sort | uniq -c
`,
  filters: requestFiltersSchema,
  list: (db, query, env) => listRequests(db, query, { now: new Date(), stuckAfterSeconds: stuckAfterSeconds(env) }),
  columns: {
    tracked: ({ tracked_at }) => tracked_at,
    status: ({ status }) => status,
    overdue: ({ overdue }) => (overdue ? 'yes' : 'no'),
    media: ({ media_items: items, media_complete }) => (items > 0 && !media_complete ? `${items}+` : items),
    key: ({ key_name }) => key_name,
    model: ({ model }) => model,
    request: ({ request_id }) => request_id,
    'last poll': ({ poll_outcome, poll_detail }) =>
      [poll_outcome, poll_detail].filter((part) => part !== null).join(': '),
  },
})

export const command: Command = {
  ...listing,
  // `--overdue` alone means `--overdue true`.
  run: (args, env) =>
    listing.run(
      args.map((arg, at) =>
        /^--(overdue|contradiction)$/.test(arg) && !/^(true|false)$/.test(args[at + 1] ?? '') ? `${arg}=true` : arg,
      ),
      env,
    ),
}

function stuckAfterSeconds(env: ProcessEnvironment): number {
  return readSome(env, (reader) => reader.withDefault('STUCK_AFTER_SECONDS', positiveInt, 120))
}
