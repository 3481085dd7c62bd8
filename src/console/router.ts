import { Router } from 'express'
import { apiRouter } from '../receiver/api/router.ts'
import type { ReceiverDeps } from '../receiver/program.ts'
import { readOverview } from '../receiver/overview.ts'
import { guardAccess } from '../runtime/access.ts'
import { page, pageAssets, pageHeaders, sendPage } from '../runtime/console-page.ts'
import { linkPolicy } from './media-links.ts'
import { nowPage, nowTiles } from './now-page.ts'

/** The internal listener: console pages and metrics. */
export function internalRouter(deps: ReceiverDeps): Router {
  const { settings, db, clock } = deps
  const router = Router()
  const links = linkPolicy(settings)
  router.use(pageHeaders({ mediaSources: links.sources }))
  router.use(pageAssets())
  router.use(guardAccess({ token: settings.internalToken, name: 'mediadock', title: 'mediadock', clock }))
  router.use(apiRouter(deps))

  router.get('/metrics', async (_req, res) => {
    res.type(deps.registry.contentType).send(await deps.registry.metrics())
  })
  const read = () => readOverview(db, { now: clock(), ...settings })
  router.get('/', async (_req, res) => {
    const body = nowPage(await read(), links)
    sendPage(res, page({ title: 'Now', product: 'mediadock', nav: [{ href: '/', label: 'Now', current: true }], body, signOut: settings.internalToken !== undefined }))
  })
  router.get('/now', async (_req, res) => sendPage(res, nowTiles(await read(), links)))
  return router
}
