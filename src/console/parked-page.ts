import { Router } from 'express'
import { html } from 'hono/html'
import { sendConsolePage, type ConsoleDeps } from './shell.ts'

export function parkedRoutes(console: ConsoleDeps): Router {
  return Router().get('/parked', (_req, res) => sendConsolePage(console, res, { title: 'Parked & quarantine', body: html`<h1>Parked &amp; quarantine</h1><p class="soft">What is kept for you to decide on.</p>` }))
}
