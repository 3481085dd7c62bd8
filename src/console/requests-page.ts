import { Router } from 'express'
import { html } from 'hono/html'
import { sendConsolePage, type ConsoleDeps } from './shell.ts'

export function requestsRoutes(console: ConsoleDeps): Router {
  return Router().get('/requests', (_req, res) => sendConsolePage(console, res, { title: 'Requests', body: html`<h1>Requests</h1><p class="soft">What is tracked at the provider, and what became of it.</p>` }))
}
