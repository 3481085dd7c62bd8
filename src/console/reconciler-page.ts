import { Router } from 'express'
import { html } from 'hono/html'
import { sendConsolePage, type ConsoleDeps } from './shell.ts'

export function reconcilerRoutes(console: ConsoleDeps): Router {
  return Router().get('/reconciler', (_req, res) => sendConsolePage(console, res, { title: 'Reconciler', body: html`<h1>Reconciler</h1><p class="soft">What no webhook told is asked for here.</p>` }))
}
