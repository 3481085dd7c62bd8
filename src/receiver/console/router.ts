import { createRequire } from 'node:module'
import path from 'node:path'
import { Router } from 'express'
import { notFound } from '../../platform/http/http.ts'
import { guardAccess } from '../../platform/pages/access.ts'
import { apiDocs } from '../../platform/pages/api-docs.ts'
import { pageAssets, pageHeaders } from '../../platform/pages/console-page.ts'
import { apiRouter } from '../api/router.ts'
import { sessions } from '../domain/on-call-schema.ts'
import type { ReceiverDeps } from '../program.ts'
import { auditRoutes } from './audit-page.ts'
import { deliveriesRoutes } from './deliveries/deliveries-page.ts'
import { deliveryRoutes } from './deliveries/delivery-page.ts'
import { replayRoutes } from './deliveries/replay-pages.ts'
import { issuesRoutes } from './issues-page.ts'
import { keysRoutes } from './keys-page.ts'
import { nowRoutes } from './now/now-page.ts'
import { parkedRoutes } from './parked/parked-page.ts'
import { sharedCounters } from './parts/counters.ts'
import { failurePage } from './parts/failures.ts'
import { linkPolicy } from './parts/media.ts'
import type { ConsoleDeps } from './parts/shell.ts'
import { reconcilerRoutes } from './reconciler-page.ts'
import { requestRoutes } from './requests/request-page.ts'
import { requestsRoutes } from './requests/requests-page.ts'
import { searchRoutes } from './search-page.ts'
import type { SlicePages } from './slice-pages.ts'

const require = createRequire(import.meta.url)
/** The files that only this console serves below /assets. */
export const assets = {
  folders: [path.join(import.meta.dirname, 'assets')],
  files: {
    'uplot.js': require.resolve('uplot/dist/uPlot.esm.js'),
    'uplot.css': require.resolve('uplot/dist/uPlot.min.css'),
  },
}

// A fixed path comes before a path that would take it for an id.
const pages = [
  nowRoutes,
  issuesRoutes,
  searchRoutes,
  deliveriesRoutes,
  replayRoutes,
  deliveryRoutes,
  requestsRoutes,
  requestRoutes,
  parkedRoutes,
  reconcilerRoutes,
  keysRoutes,
  auditRoutes,
]

/** The internal listener: console pages, JSON API and metrics. */
export function internalRouter(deps: ReceiverDeps, slices: readonly SlicePages[]): Router {
  const { settings, clock, registry, db, logger, metrics, background } = deps
  const router = Router()
  const when = () => ({ now: clock(), stuckAfterSeconds: settings.stuckAfterSeconds })
  const console: ConsoleDeps = { ...deps, when, links: linkPolicy(settings), counters: sharedCounters(deps) }
  router.use(pageHeaders({ mediaOrigins: console.links.plainOrigins }))
  router.use(pageAssets(assets))
  const onRefused = (reason: string) => metrics.signInsRefused.inc({ reason })
  router.use(
    guardAccess({
      token: settings.internalToken,
      name: 'mediadock',
      title: 'mediadock',
      db,
      sessionsTable: sessions,
      clock,
      logger,
      guesses: background.guesses,
      onRefused,
    }),
  )
  for (const { routes } of slices) if (routes) router.use(routes(deps))
  const operations = slices.map((slice) => slice.operations?.(deps) ?? [])
  router.use(apiRouter(deps, operations))
  router.use(apiDocs({ title: 'mediadock API', document: '/api/openapi.json' }))
  router.get('/metrics', async (_req, res) => {
    res.type(registry.contentType).send(await registry.metrics())
  })
  const ofSlices = slices.flatMap(({ pages: routes }) => routes ?? [])
  for (const routes of [...pages, ...ofSlices]) router.use(routes(console))
  router.use(notFound)
  router.use(failurePage(console))
  return router
}
