import { randomUUID } from 'node:crypto'
import type { Express, Request, Response } from 'express'
import { html } from 'hono/html'
import { HttpError } from '../../platform/http/http.ts'
import type { Markup } from '../../platform/pages/console-page.ts'
import { fieldsOf, readForm } from '../../platform/pages/form.ts'
import { requestIdSchema } from '../../wire/schemas.ts'
import { listedRows } from '../accounts/keys.ts'
import { listUsableKeys, type UsableKey } from '../accounts/usable-keys.ts'
import { insertTest, lastWebhookUrl, testBody, type TestOutcome, testsPerMinute } from '../webhooks/test-webhook.ts'
import { checkWebhookUrl } from '../webhooks/webhook-url.ts'
import { auditedHere, type ConsoleDeps, refuseNulIn } from './actions.ts'
import { fieldProblem, keyOption, markedWith, type Show } from './parts.ts'

const exampleId = '3f0c5a52-9d7e-4c1b-8a46-2f1e0c9b7d10'

type TestForm = { id: string; key: string; url: string }
type TestProblem = { field: 'key' | 'url' | undefined; text: string }

/** "Send a test": the form sends one signed webhook, then leads to the page with the answer. */
export function showTests(app: Express, deps: ConsoleDeps, show: Show): void {
  const { db, settings, resolve, onDue } = deps

  const answer = async (req: Request, res: Response, form: TestForm, problem?: TestProblem) => {
    const { id, key: wanted, url: given } = form
    const account = typeof req.query['account'] === 'string' ? req.query['account'] : undefined
    const keys = await listUsableKeys(db, { account, wanted: requestIdSchema.safeParse(wanted).data })
    const chosen = wanted === '' ? keys[0] : keys.find((each) => each.id === wanted)
    const url =
      given !== '' || problem !== undefined || chosen === undefined
        ? given
        : ((await lastWebhookUrl(db, chosen.account)) ?? '')
    show(req, res, 'Send a test', testPage({ id, key: chosen?.id ?? wanted, url }, keys, problem))
  }

  app.get('/deliveries/test', async (req, res) => {
    const key = typeof req.query['key'] === 'string' ? req.query['key'] : ''
    await answer(req, res, { id: randomUUID(), key, url: '' })
  })

  app.post('/deliveries/test', readForm, async (req, res) => {
    refuseNulIn(req)
    const { id = randomUUID(), key = '', url = '' } = fieldsOf(req)
    const form = { id, key, url: url.trim() }
    const [testId, keyId] = [requestIdSchema.safeParse(id), requestIdSchema.safeParse(key)]
    if (!testId.success)
      throw new HttpError(400, 'invalid_form', 'the form is not valid: go back, reload the page and try again')
    if (!keyId.success) return answer(req, res.status(422), form, unknownKey)
    let checked: string
    try {
      checked = await checkWebhookUrl(form.url, { allow: settings.webhookAllow, resolve })
    } catch (error) {
      if (!(error instanceof HttpError) || error.status >= 500) throw error
      return answer(req, res.status(error.status), form, { field: 'url', text: error.message })
    }
    const outcome = await auditedHere(deps, req, {
      action: 'test_webhook',
      target: keyId.data,
      detailOf: (end) => (end === 'there' ? { delivery_id: testId.data, host: new URL(checked).host } : undefined),
      work: () => insertTest(db, { id: testId.data, keyId: keyId.data, url: checked }),
    })
    if (outcome !== 'there') {
      const { status, ...problem } = refusals[outcome]
      return answer(req, res.status(status), outcome === 'used' ? { ...form, id: randomUUID() } : form, problem)
    }
    onDue()
    return res.redirect(303, `/deliveries/${testId.data}`)
  })
}

const unknownKey = { field: 'key', text: 'this key does not exist or is revoked: choose another' } as const

const refusals: Record<Exclude<TestOutcome, 'there'>, TestProblem & { status: number }> = {
  'unknown key': { status: 422, ...unknownKey },
  used: {
    status: 409,
    field: undefined,
    text: 'Nothing was sent now. This form has already sent a test, with another URL or key. Press again to send this test too.',
  },
  'too many': {
    status: 429,
    field: undefined,
    text: `Nothing was sent: an account may send ${testsPerMinute} tests in a minute. Try again in a minute.`,
  },
}

function testPage({ id, key, url }: TestForm, keys: readonly UsableKey[], problem: TestProblem | undefined): Markup {
  const textOf = (field: TestProblem['field']) => (problem?.field === field ? problem?.text : undefined)
  // No other key is chosen instead: it might be another account's.
  const isGone = !keys.some((each) => each.id === key)
  const form = html`<form method="post" action="/deliveries/test">
    ${problem?.field === undefined && problem ? html`<p class="problem" role="alert">${problem.text}</p>` : ''}
    <input type="hidden" name="id" value="${id}" autocomplete="off" />
    <div class="field">
      <label for="key">Account and key</label>
      <select id="key" name="key" required ${markedWith('key', textOf('key'))}>
        ${isGone ? html`<option value="" selected>choose a key</option>` : ''}
        ${keys.map((each) => keyOption(each, key))}
      </select>
      <p class="hint">The test is signed with the secret of this key.${keys.length < listedRows ? '' : ` The newest ${listedRows} are listed. An older key has a link to this form on the page of its account.`}</p>
      <div role="alert">${fieldProblem('key', textOf('key'))}</div>
    </div>
    <div class="field">
      <label for="url">URL</label>
      <input id="url" name="url" type="url" value="${url}" required spellcheck="false" autocomplete="off" ${markedWith('url', textOf('url'))} />
      <p class="hint">An https URL outside private networks, or a URL whose origin is in PROVIDER_WEBHOOK_ALLOW.</p>
      <div role="alert">${fieldProblem('url', textOf('url'))}</div>
    </div>
    <button>Send a test</button>
  </form>`
  return html`<h1>Send a test</h1>
    <div class="columns">
      <section class="card">${keys.length === 0 ? html`<p class="empty">No key yet. <a href="/">Create a key</a> first.</p>` : form}</section>
      <section class="card">
        <h2>What is sent</h2>
        <p>One POST at once, signed like any webhook and never retried. Its status is <code>TEST</code>, which the notification of a generation never has:</p>
        <pre tabindex="0" aria-label="Body of a test">${JSON.stringify(JSON.parse(testBody(exampleId)), null, 2)}</pre>
        <p class="soft">For the webhook of a request, <a href="/models">run a model</a> with a sandbox key and a webhook_url. It is free.</p>
      </section>
    </div>`
}
