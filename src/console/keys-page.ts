import { Router } from 'express'
import { html } from 'hono/html'
import { sendConsolePage, type ConsoleDeps } from './shell.ts'

export function keysRoutes(console: ConsoleDeps): Router {
  return Router().get('/keys', (_req, res) => sendConsolePage(console, res, { title: 'Keys', body: html`<h1>Keys</h1><p class="soft">Which keys verify webhooks and call the provider.</p>` }))
}
