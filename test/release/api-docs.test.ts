import { once } from 'node:events'
import http from 'node:http'
import type { AddressInfo } from 'node:net'
import express from 'express'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { docsRouter } from '../../src/provider/api/api.ts'
import { expectAccessible, openPage, shoot } from '../browser/support/console.ts'
import { sharedBrowser } from '../support/browser.ts'
import { withReceiver } from '../support/with-receiver.ts'

let browser: Browser
let server: http.Server
let url: string

beforeAll(async () => {
  browser = await sharedBrowser()
  server = http.createServer(express().use(docsRouter('https://api.example.com'))).listen(0, '127.0.0.1')
  await once(server, 'listening')
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/docs`
})
afterAll(async () => {
  server.close()
})

it("the provider's API documentation is available, in the system's colour scheme", async () => {
  const page = await openPage(browser, url, { colorScheme: 'dark' })
  await page.getByText('Submit a generation', { exact: true }).click()
  await page.getByText('a sunrise over snow').first().waitFor()
  const background = () => page.evaluate<string>('getComputedStyle(document.documentElement).backgroundColor')
  expect(await background()).toBe('rgb(28, 32, 34)')
  await expectAccessible(page)
  await shoot(page, 'docs-dark')
  await page.emulateMedia({ colorScheme: 'light' })
  await expect.poll(background).toBe('rgba(0, 0, 0, 0)')
  await expectAccessible(page)
  await shoot(page, 'docs-light')
  // The address names what is open: it can be sent to somebody.
  expect(page.url()).toMatch(/#\/Generations\/submit$/)
})

it("the console leads to that of the receiver, from our own files, in the system's colour scheme", async () => {
  const { receiver, stop } = await withReceiver()
  onTestFinished(stop)
  const page = await openPage(browser, `${receiver.internalUrl}keys`, { colorScheme: 'dark' })
  await page.getByRole('link', { name: 'API documentation' }).click()
  await page.getByText('/api/search').first().waitFor()
  await page.getByText('Open and closed issues, newest first', { exact: true }).click()
  await page.getByText('Example Value').first().waitFor()
  const scheme = () => page.evaluate('document.documentElement.className')
  expect(await scheme()).toBe('dark-mode')
  await expectAccessible(page)
  await shoot(page, 'api-docs')
  await page.emulateMedia({ colorScheme: 'light' })
  await expect.poll(scheme).toBe('')
  await expectAccessible(page)
})
