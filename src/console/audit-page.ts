import { Router } from 'express'
import { html } from 'hono/html'
import { sendConsolePage, type ConsoleDeps } from './shell.ts'

export function auditRoutes(console: ConsoleDeps): Router {
  return Router().get('/audit', (_req, res) => sendConsolePage(console, res, { title: 'Audit', body: html`<h1>Audit</h1><p class="soft">Who did what.</p>` }))
}
