import chromium from '@sparticuz/chromium'
import { chromium as playwright, type Browser } from 'playwright-core'

// The package's own flags are for a sandboxed function: one process, and web security off. Drawing needs no GPU made of software.
// Each page is short-lived, so optimizing its scripts costs more than it saves.
const args = chromium.args
  .filter((flag) => !/^--(single-process|no-zygote|disable-web-security|allow-running-insecure-content)/.test(flag))
  .concat('--disable-gpu', '--js-flags=--no-opt')

/** Chromium out of its npm package: no download, and it runs as root. */
export async function launchBrowser(): Promise<Browser> {
  return playwright.launch({ executablePath: await chromium.executablePath(), args, headless: true })
}

let shared: Promise<Browser> | undefined

/** The browser that all test files of this process share. It ends with the process. */
export function sharedBrowser(): Promise<Browser> {
  return (shared ??= launchBrowser())
}
