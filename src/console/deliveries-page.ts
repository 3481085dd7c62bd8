import { Router } from 'express'
import { html } from 'hono/html'
import { sendConsolePage, type ConsoleDeps } from './shell.ts'

export function deliveriesRoutes(console: ConsoleDeps): Router {
  return Router().get('/deliveries', (_req, res) => sendConsolePage(console, res, { title: 'Deliveries', body: html`<h1>Deliveries</h1>` }))
}
