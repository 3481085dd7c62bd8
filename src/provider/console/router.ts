import path from 'node:path'
import express, { type ErrorRequestHandler, type Express, type Request, type Response } from 'express'
import { html } from 'hono/html'
import { z } from 'zod'
import { errorHandler, HttpError, notFound } from '../../platform/http/http.ts'
import { requestLogger } from '../../platform/http/request-log.ts'
import { guardAccess } from '../../platform/pages/access.ts'
import { footer, page, pageAssets, pageHeaders, sendPage } from '../../platform/pages/console-page.ts'
import type { Markup } from '../../platform/pages/parts.ts'
import { requestIdSchema } from '../../wire/schemas.ts'
import { listKeys } from '../accounts/keys.ts'
import { checkLedger } from '../accounts/ledger.ts'
import { readAccount } from '../api/results.ts'
import { sessions } from '../domain/console-schema.ts'
import * as commands from '../operating/commands.ts'
import { listAudit } from '../operating/commands.ts'
import {
  accountPage,
  accountsPage,
  type AccountTab,
  accountTabs,
  createdKeyPage,
  faultsPage,
  keysTab,
  ledgerPage,
  ledgerTab,
  revokePage,
} from './account-pages.ts'
import { accountActions, type ConsoleDeps, refuseNul } from './actions.ts'
import { auditPage } from './audit-page.ts'
import { showDeliveries } from './deliveries-page.ts'
import { listPages } from './list-page.ts'
import { modelsPage } from './model-page.ts'
import { showModels } from './model-routes.ts'
import { accountPath, type Show } from './parts.ts'
import { listAccounts, listEntries, rowsShown } from './reads.ts'
import { showRequests } from './requests-page.ts'

const product = 'Provider'
const pages = {
  '/': 'Accounts',
  '/requests': 'Requests',
  '/deliveries': 'Deliveries',
  '/models': 'Models',
  '/ledger': 'Ledger',
  '/audit': 'Audit',
}

/** The developer console, on a separate listener (spec, API key; decisions, sign-in of both consoles). */
export function createConsole(deps: ConsoleDeps): Express {
  const { settings, clock, logger } = deps
  const app = express()
  app
    .disable('x-powered-by')
    .disable('etag')
    .set('trust proxy', settings.internalTrustProxy)
    .set('query parser', 'simple')
  app.use(requestLogger(logger))
  app.use(pageHeaders({ mediaOrigins: [new URL(settings.mediaUrl).origin] }))
  app.use(pageAssets({ folders: [path.join(import.meta.dirname, 'assets')] }))
  const access = { token: settings.consoleToken, name: 'mediadock_provider', title: product, sessionsTable: sessions }
  app.use(guardAccess({ ...access, db: deps.db, clock, logger }))
  const show = (req: Request, res: Response, title: string, body: Markup) => {
    const nav = Object.entries(pages).map(([href, label]) => ({
      href,
      label,
      current: href === req.path || req.path.startsWith(href === '/' ? '/accounts/' : `${href}/`),
    }))
    const below = footer(clock(), html`<a href="${new URL('/docs', settings.baseUrl).href}">API documentation</a>`)
    const scripts = ['/assets/copy.js', '/assets/times.js']
    const styles = ['/assets/developer-console.css']
    const signOut = settings.consoleToken !== undefined
    sendPage(res, page({ title, product, nav, body, below, scripts, styles, signOut }))
  }
  app.use(refuseNul)
  showAccounts(app, deps, show)
  showModels(app, deps, show)
  showRequests(app, deps, show)
  showDeliveries(app, deps, show)
  app.use(accountActions(deps, (req, res, key) => show(req, res, 'New key', createdKeyPage(key))))
  app.use(notFound)
  app.use(failurePage(show))
  app.use(errorHandler(logger))
  return app
}

function showAccounts(app: Express, deps: ConsoleDeps, show: Show): void {
  const { db } = deps
  app.get('/', async (req, res) => show(req, res, 'Accounts', accountsPage(await listAccounts(db))))
  app.get('/accounts/:account', async (req, res) => {
    const { account } = req.params
    const read = await readAccount(db, account)
    const tab = z.enum(accountTabs).catch('keys').parse(req.query['tab'])
    show(req, res, account, accountPage(read, tab, await accountTab(deps, req, account, tab)))
  })
  app.get('/keys/:id/faults', async (req, res) => {
    const key = await commands.readKey(deps, req.params.id)
    if (key === undefined) throw new HttpError(404, 'not_found', 'there is no such key')
    show(req, res, 'Faults', faultsPage(key))
  })
  app.get('/keys/:id/revoke', async (req, res) => {
    const key = await commands.readKey(deps, req.params.id)
    if (key === undefined || key.revoked_at !== null)
      throw new HttpError(404, 'not_found', 'there is no such key, or it is already revoked')
    show(req, res, 'Revoke', revokePage(key))
  })
  app.get('/audit', async (req, res) => {
    const target = z.string().min(1).optional().catch(undefined).parse(req.query['target'])
    const before = rowNumber.parse(req.query['before'])
    const rows = await listAudit(db, { target, before, limit: rowsShown })
    const pages = listPages('/audit', { target }, { isFirst: before === undefined, older: olderThan(rows) })
    show(req, res, 'Audit', auditPage(rows, target, pages))
  })
  app.get('/ledger', async (req, res) => show(req, res, 'Ledger', ledgerPage(await checkLedger(db))))
  app.get('/models', async (req, res) =>
    show(req, res, 'Models', modelsPage(await commands.listModels(deps), deps.catalog())),
  )
}

/** Reads and shows one tab of an account. */
async function accountTab(deps: ConsoleDeps, req: Request, account: string, tab: AccountTab): Promise<Markup> {
  const { db } = deps
  const { before: given } = req.query
  const pages = (older: string | undefined) =>
    listPages(accountPath(account), { tab }, { isFirst: given === undefined, older })
  switch (tab) {
    case 'keys': {
      const before = requestIdSchema.safeParse(given).data
      const keys = await listKeys(db, { account, before, limit: rowsShown })
      return keysTab(account, keys, pages(olderThan(keys)))
    }
    case 'ledger': {
      const entries = await listEntries(db, account, rowNumber.parse(given), rowsShown)
      return ledgerTab(account, entries, pages(olderThan(entries)))
    }
    default:
      return tab satisfies never
  }
}

/** The number of a row in an address. Undefined for any other text. */
const rowNumber = z.coerce.number().int().positive().optional().catch(undefined)

/** The id of the last row, where the next page begins. */
function olderThan(rows: readonly { id: string | number }[]): string | undefined {
  return rows.length === rowsShown ? String(rows.at(-1)?.id) : undefined
}

/** Answers expected errors to browsers with a page. Everything else gets the error envelope. */
function failurePage(show: Show): ErrorRequestHandler {
  return (error, req, res, next) => {
    const known = error instanceof commands.CommandError ? new HttpError(400, 'not_possible', error.message) : error
    if (!(known instanceof HttpError) || req.accepts(['json', 'html']) !== 'html') return next(known)
    res.status(known.status).set(known.headers)
    const problem = html`<p class="problem" role="alert">${known.message}</p>`
    return show(req, res, 'Not possible', html`<h1>Not possible</h1>${problem}<p><a href="/">Accounts</a></p>`)
  }
}
