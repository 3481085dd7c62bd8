import { Router } from 'express'
import { html } from 'hono/html'
import { sendConsolePage, type ConsoleDeps } from './shell.ts'

export function requestRoutes(console: ConsoleDeps): Router {
  return Router().get('/requests/:id', (_req, res) => sendConsolePage(console, res, { title: 'Request', body: html`<h1>Request</h1><p class="soft">Everything that is known of one request.</p>` }))
}
