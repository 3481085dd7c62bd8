/**
 * The actions of the developer console and of `mediadock provider …`: functions on plain data. A refused action throws
 * a CommandError with a message of one line. Each change is recorded in the audit as done by `by`. Only
 * createKey needs the secretKey.
 */
import { z } from 'zod'
import { type Actor, type AuditDeps, createAudit } from '../../platform/pages/audit.ts'
import { plainWords } from '../../platform/plain-words.ts'
import { and, desc, eq, lt, sql } from '../../platform/postgres/drizzle.ts'
import { createPool, type Database } from '../../platform/postgres/postgres.ts'
import { requestIdSchema } from '../../wire/schemas.ts'
import * as keys from '../accounts/keys.ts'
import * as ledger from '../accounts/ledger.ts'
import { builtInCatalog } from '../catalog/catalog-file.ts'
import type { Catalog } from '../catalog/catalog-model.ts'
import { audit } from '../domain/console-schema.ts'
import { type Faults, faultsSchema } from '../domain/faults.ts'
import { environments, type Environment, modelActivations, requests as request, scopes } from '../domain/schema.ts'
import * as requests from '../queue/requests.ts'

/** `by` is the actor that the audit records. */
export type CommandDeps = AuditDeps & { secretKey: Buffer; catalog: () => Catalog; by: Actor }
type ReadDeps = Pick<CommandDeps, 'db'>

/** The command failed. `malformed` is true if it could never succeed, with any content of the database. */
export class CommandError extends Error {
  override name = 'CommandError'
  code = 'command' as const
  malformed: boolean
  constructor(message: string, { malformed = false } = {}) {
    super(message)
    this.malformed = malformed
  }
}

export function openProvider({ databaseUrl, ...given }: { databaseUrl: string } & Partial<CommandDeps>) {
  const pool = createPool({ url: databaseUrl, max: 2 })
  const [by, logger] = [{ via: 'cli', actor: 'unknown' } as const, { error: () => {} }]
  const usual = { secretKey: Buffer.alloc(0), catalog: builtInCatalog, clock: () => new Date(), by, logger }
  const deps: CommandDeps = { db: pool.db, ...usual, ...given }
  return { deps, close: pool.close }
}

// Names appear in logs, pages and shell commands.
const nameSchema = z
  .string()
  .regex(
    /^(?=.{1,100}$)[^\p{C}\s](?:[^\p{C}]*[^\p{C}\s])?$/u,
    'must be 1 to 100 printable characters without spaces at its ends',
  )
// A URL parser would remove . and .. from the address of the account's page.
const accountSchema = nameSchema.refine((name) => name !== '.' && name !== '..', 'must not be . or ..')
const newKeySchema = z.object({
  account: accountSchema,
  name: nameSchema,
  environment: z.enum(environments),
  scopes: z
    .array(z.enum(scopes, 'must be generate, read or both'))
    .min(1)
    .transform((given) => [...new Set(given)])
    .optional(),
})
const creditsSchema = z
  .union([z.string(), z.number().transform(String)])
  .pipe(z.string().regex(/^(?=.*[1-9])\d{1,12}(\.\d{1,6})?$/, 'must be a decimal above 0 with at most 6 places'))

/** As typed. `id` is set by a form, so that resending it does not repeat the action. */
export type WantedKey = {
  account: string
  name: string
  environment: string
  scopes?: readonly string[]
  id?: string | undefined
}

export async function createKey(deps: CommandDeps, { id, ...wanted }: WantedKey): Promise<keys.CreatedKey> {
  const key = parse(newKeySchema, wanted)
  const detailOf = ({ api_key: _key, signing_secret: _secret, ...shown }: keys.CreatedKey) => shown
  return audited(deps, { ...deps.by, action: 'key_create', target: key.account, detailOf }, async () => {
    const created = await keys.insertKey(deps, { id, ...key })
    const shownOnce = 'its secret was shown once. If it is lost, revoke the key and create another'
    if (created === undefined && id !== undefined) throw new CommandError(`this key exists already and ${shownOnce}`)
    if (created === undefined) throw new CommandError('the new key equals an existing one: try again')
    return created
  })
}

export async function readKey({ db }: ReadDeps, id: string): Promise<keys.KeyListing | undefined> {
  const known = requestIdSchema.safeParse(id)
  return known.success ? keys.readKey(db, known.data) : undefined
}

export async function revokeKey(deps: CommandDeps, id: string): Promise<{ id: string; revoked: true }> {
  return audited(deps, { ...deps.by, action: 'key_revoke', target: id, detailOf: () => ({}) }, async () => {
    if (!(await keys.revokeKey(deps.db, keyId(id)))) throw unknownKey(id)
    return { id, revoked: true }
  })
}

/** `id` is set by a form: resending it grants nothing more. */
export type WantedGrant = { account: string; credits: string | number; id?: string | undefined }

/** Grants credits to an account, creating the account if it is new. */
export async function grantCredits(deps: CommandDeps, { account, credits: given, id }: WantedGrant) {
  const { db } = deps
  const accountId = parse(accountSchema, account, 'account')
  const credits = parse(creditsSchema, given, 'credits')
  const detailOf = ({ balance }: { balance: number }) => ({ credits, balance, ...(id !== undefined && { form: id }) })
  return audited(deps, { ...deps.by, action: 'credits_grant', target: accountId, detailOf }, async () => {
    const reference = id === undefined ? undefined : `form:${id}`
    const balance = Number(await ledger.grant(db, { accountId, credits, reference }))
    if (reference !== undefined && !(await ledger.isGranted(db, { accountId, credits, reference })))
      throw new CommandError('this form has granted other credits before: reload its page and fill it in again')
    return { account, balance }
  })
}

export async function cancelRequest(
  deps: CommandDeps,
  requestId: string,
): Promise<{ request_id: string; status: 'CANCELED' }> {
  const id = parse(requestIdSchema, requestId, 'request_id')
  return audited(deps, { ...deps.by, action: 'request_cancel', target: id, detailOf: () => ({}) }, async () => {
    if (!(await requests.cancelRequest(deps.db, id, false))) throw await whyNotCanceled(deps, id)
    return { request_id: id, status: 'CANCELED' }
  })
}

async function whyNotCanceled({ db }: ReadDeps, id: string): Promise<CommandError> {
  const [row] = await db.select({ status: request.status }).from(request).where(eq(request.id, id))
  return new CommandError(row ? `request ${id} is already ${row.status}` : `there is no request ${id}`)
}

export type ModelListing = { slug: string; type: string; name: string } & Record<Environment, boolean>

export async function listModels({ db, catalog }: Pick<CommandDeps, 'db' | 'catalog'>): Promise<ModelListing[]> {
  const rows = await db.select().from(modelActivations)
  const switched = new Map(rows.map(({ slug, environment, enabled }) => [`${environment} ${slug}`, enabled]))
  return [...catalog().values()].map(({ slug, type, name, environments: defaults }) => {
    const active = (environment: Environment) =>
      switched.get(`${environment} ${slug}`) ?? defaults.includes(environment)
    return { slug, type, name, live: active('live'), sandbox: active('sandbox') }
  })
}

/** Enables or disables a model, from the next request on in every process (spec, Versioning). */
export async function setModelEnabled(
  deps: CommandDeps,
  { slug, enabled, ...given }: { slug: string; environment: string; enabled: boolean },
) {
  const { db, catalog } = deps
  const environment = parse(z.enum(environments), given.environment, 'environment')
  if (!catalog().has(slug)) {
    const action = 'If the provider has a catalog file, set PROVIDER_CATALOG to the same value'
    throw new CommandError(`there is no model ${slug}. ${action}`)
  }
  const action = enabled ? 'model_enable' : 'model_disable'
  return audited(deps, { ...deps.by, action, target: slug, detailOf: () => ({ environment }) }, async () => {
    const { environment: of, slug: model } = modelActivations
    const row = { environment, slug, enabled, updated_at: sql`now()` }
    const set = { enabled, updated_at: row.updated_at }
    await db
      .insert(modelActivations)
      .values(row)
      .onConflictDoUpdate({ target: [of, model], set })
    return { slug, environment, enabled }
  })
}

/** Parses `name=value` words of the command line. */
export function parseFaults(words: readonly string[]): Faults {
  const entries = words.map((word) => {
    const [name = '', value = ''] = word.split('=', 2)
    // A text that is not a number is kept, so that the error names it as one.
    return [name, value.trim() !== '' && Number.isFinite(Number(value)) ? Number(value) : value] as const
  })
  const names = Object.keys(faultsSchema.shape).join(', ')
  if (entries.length === 0) throw new CommandError(`give at least one of ${names} as name=value`, { malformed: true })
  return parse(faultsSchema, Object.fromEntries(entries))
}

/** Sets or, with null, clears the faults of a sandbox key. */
export async function setFaults(deps: CommandDeps, id: string, faults: Faults | null) {
  const wanted = parse(faultsSchema.nullable(), faults)
  const action = wanted === null ? 'faults_clear' : 'faults_set'
  return audited(deps, { ...deps.by, action, target: id, detailOf: () => wanted ?? {} }, async () => {
    const outcome = await keys.updateFaults(deps.db, keyId(id), wanted)
    if (outcome === 'unknown') throw unknownKey(id)
    if (outcome === 'live') throw new CommandError(`key ${id} is a live key: only sandbox keys can have faults`)
    return { id, faults: wanted }
  })
}

function keyId(id: string): string {
  const parsed = requestIdSchema.safeParse(id)
  if (!parsed.success) throw unknownKey(id)
  return parsed.data
}

function unknownKey(id: string): CommandError {
  return new CommandError(`there is no key ${id}`)
}

function parse<T>(schema: z.ZodType<T>, value: unknown, name?: string): T {
  const parsed = schema.safeParse(value, plainWords)
  if (parsed.success) return parsed.data
  const [issue] = parsed.error.issues
  const where = [...(name === undefined ? [] : [name]), ...(issue?.path ?? [])].join('.')
  throw new CommandError(`${where || 'the value'} ${issue?.message ?? 'is invalid'}`, { malformed: true })
}

/** The provider's audit: changes of keys, credits, models and faults, cancels, and actions of the console. */
export const audited = createAudit(audit)

export type AuditRow = typeof audit.$inferSelect

type AuditFilters = { target?: string | undefined; before?: number | undefined; limit: number }

/**
 * Lists entries, newest first. `before` is the last id of the previous page. `target` is the affected account, key,
 * request or model.
 */
export async function listAudit(db: Database, { target, before, limit }: AuditFilters): Promise<AuditRow[]> {
  const ofTarget = target === undefined ? undefined : eq(audit.target, target)
  const older = before === undefined ? undefined : lt(audit.id, before)
  return db.select().from(audit).where(and(ofTarget, older)).orderBy(desc(audit.id)).limit(limit)
}
