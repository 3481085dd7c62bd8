import { readProviderSecretKey, readSome } from '../config/config.ts'
import { readLocalSecrets } from '../laptop/local.ts'
import { listKeys } from '../provider/accounts/keys.ts'
import { checkLedger } from '../provider/accounts/ledger.ts'
import * as provider from '../provider/operating/commands.ts'
import type { CommandDeps } from '../provider/operating/commands.ts'
import { readCatalogSettings } from '../provider/settings.ts'
import { actorHere, stderrLogger } from './audited-command.ts'
import { withDatabase } from './database.ts'
import { printItems, type TableColumns } from './listing.ts'
import { defineCommand, printJson, required, UsageError } from './usage.ts'

type Options = Partial<Record<'account' | 'name' | 'environment' | 'scopes' | 'credits', string>>
/** The result of an action, as JSON and for people. */
type Result = { json: object; print: () => void; code?: number }
type Action = (deps: CommandDeps, words: string[], options: Options) => Promise<Result>

/** Every action by its words. The words after them are its arguments. */
const actions: Record<string, Action> = {
  'keys create': async (deps, _words, { account, name, environment, scopes }) => {
    const created = await provider.createKey(deps, {
      account: required(account, '--account'),
      name: required(name, '--name'),
      environment: required(environment, '--environment'),
      ...(scopes !== undefined && { scopes: scopes.split(',') }),
    })
    return { json: created, print: () => printFacts({ ...created, scopes: created.scopes.join(',') }) }
  },
  'keys list': async (deps, _words, { account }) =>
    table(await listKeys(deps.db, { account }), {
      id: ({ id }) => id,
      account: (key) => key.account,
      name: ({ name }) => name,
      environment: ({ environment }) => environment,
      scopes: ({ scopes }) => scopes.join(','),
      key: ({ hint }) => `…${hint}`,
      state: ({ revoked_at }) => (revoked_at ? 'revoked' : 'valid'),
    }),
  'keys revoke': async (deps, [id]) => facts(await provider.revokeKey(deps, required(id, 'the id of the key'))),
  'credits grant': async (deps, _words, { account, credits }) => {
    const wanted = { account: required(account, '--account'), credits: required(credits, '--credits') }
    return facts(await provider.grantCredits(deps, wanted))
  },
  cancel: async (deps, [id]) => facts(await provider.cancelRequest(deps, required(id, 'the id of the request'))),
  'models list': async (deps) =>
    table(await provider.listModels(deps), {
      slug: ({ slug }) => slug,
      type: ({ type }) => type,
      live: ({ live }) => (live ? 'on' : 'off'),
      sandbox: ({ sandbox }) => (sandbox ? 'on' : 'off'),
      name: ({ name }) => name,
    }),
  'models enable': switchModel(true),
  'models disable': switchModel(false),
  'faults set': async (deps, [id, ...faults]) =>
    facts(await provider.setFaults(deps, required(id, 'the id of the key'), provider.parseFaults(faults))),
  'faults clear': async (deps, [id]) => facts(await provider.setFaults(deps, required(id, 'the id of the key'), null)),
  'ledger check': async (deps) => {
    const check = await checkLedger(deps.db)
    return { ...facts(check), code: check.ok ? 0 : 1 }
  },
}

export const command = defineCommand({
  help: `
mediadock provider keys create --account A --name N --environment live|sandbox [--scopes generate,read] [--json]
mediadock provider keys list [--account A] [--json]
mediadock provider keys revoke <key id>
mediadock provider credits grant --account A --credits N
mediadock provider cancel <request_id>
mediadock provider models list|enable|disable [<slug> --environment live|sandbox]
mediadock provider faults set <key id> failed=1 late_seconds=5 …
mediadock provider faults clear <key id>
mediadock provider ledger check

The provider's developer console on the command line. The API key and the signing secret of a new key
are shown once. --json prints one JSON line.
Models come from PROVIDER_CATALOG: set it here to the provider's value.

  mediadock provider keys create --account acme --name ci --environment sandbox --json
  mediadock provider credits grant --account acme --credits 500
  mediadock provider faults set 0198… duplicate=0.2 drop=0.1
`,
  options: {
    account: { type: 'string' },
    name: { type: 'string' },
    environment: { type: 'string' },
    scopes: { type: 'string' },
    credits: { type: 'string' },
    json: { type: 'boolean' },
  },
  takesWords: true,
  run: async ({ json, ...options }, words, env) => {
    const count = [2, 1].find((some) => actions[words.slice(0, some).join(' ')]) ?? 0
    const action = actions[words.slice(0, count).join(' ')]
    if (!action) throw new UsageError('unknown action: mediadock provider --help lists the actions')
    // Only `keys create` encrypts a secret. Other actions work without the secret key.
    const secretKey =
      action === actions['keys create'] && readProviderSecretKey(env, (await readLocalSecrets(env)).defaults.secretKey)
    // Read lazily, because most actions need no catalog.
    const catalog = () => readSome(env, readCatalogSettings).catalog
    const by = { via: 'cli', actor: actorHere() } as const
    return withDatabase(env, 'provider', async (databaseUrl) => {
      const given = { databaseUrl, catalog, by, logger: stderrLogger, ...(secretKey && { secretKey }) }
      const { deps, close } = provider.openProvider(given)
      try {
        const result = await action(deps, words.slice(count), options)
        if (json) printJson(result.json)
        else result.print()
        return result.code ?? 0
      } catch (error) {
        if (error instanceof provider.CommandError && error.malformed) throw new UsageError(error.message)
        throw error
      } finally {
        await close()
      }
    })
  },
})

function switchModel(enabled: boolean): Action {
  return async (deps, [given], { environment: where }) => {
    const slug = required(given, 'the slug of the model')
    const environment = required(where, '--environment')
    return facts(await provider.setModelEnabled(deps, { slug, environment, enabled }))
  }
}

function table<T>(items: readonly T[], columns: TableColumns<T>): Result {
  return { json: items, print: () => void printItems(items, columns, false) }
}

function facts(value: object): Result {
  return { json: value, print: () => printFacts(value) }
}

function printFacts(value: object): void {
  const lines = Object.entries(value).map(
    ([name, fact]) => [name, typeof fact === 'object' ? JSON.stringify(fact) : String(fact)] as const,
  )
  const width = Math.max(...lines.map(([name]) => name.length))
  for (const [name, fact] of lines) process.stdout.write(`${name.padEnd(width)}  ${fact}\n`)
}
