import { Router } from 'express'
import { readStats } from '../receiver/queries/stats.ts'
import { sendPage } from '../runtime/console-page.ts'
import { nowPage, nowTiles } from './now-page.ts'
import { sendConsolePage, type ConsoleDeps } from './shell.ts'

export function nowRoutes(console: ConsoleDeps): Router {
  const { db, clock, settings, links } = console
  const read = () => readStats(db, { now: clock(), ...settings })
  return Router()
    .get('/', async (_req, res) => sendConsolePage(console, res, { title: 'Now', body: nowPage(await read(), links) }))
    .get('/now', async (_req, res) => sendPage(res, nowTiles(await read(), links)))
}
