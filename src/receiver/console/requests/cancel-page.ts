import { Router, type Request as HttpRequest } from 'express'
import { html } from 'hono/html'
import { type Markup, linkTo, confirmation } from '../../../platform/pages/parts.ts'
import { auditedCall, unknown, uuidParam } from '../../api/operation.ts'
import { readWithin } from '../../queries/deadline.ts'
import { findRequest, type Request } from '../../queries/requests.ts'
import { cancelOf } from '../../submitting/canceling.ts'
import { foreign } from '../parts/parts.ts'
import { sendConsolePage, type ConsoleDeps } from '../parts/shell.ts'

/** The step before a cancellation, and the cancellation itself. */
export function cancelRoutes(console: ConsoleDeps): Router {
  const { db, clock, when, background } = console
  const requestOf = async (req: HttpRequest): Promise<Request> => {
    const request = await readWithin(db, (tx) => findRequest(tx, uuidParam(req, 'id'), when()))
    if (!request) throw unknown(req)
    return request
  }
  const router = Router()
  router.get('/requests/:id/cancel', async (req, res) => {
    const request = await requestOf(req)
    const body = cancelPage(request, cancelOf(console, request) !== undefined)
    return sendConsolePage(console, res, { title: 'Cancel', body })
  })
  router.post('/requests/:id/cancel', async (req, res) => {
    const request = await requestOf(req)
    const { id } = request
    const work = () => console.cancel(request)
    const detailOf = (outcome: string) => ({ outcome })
    await auditedCall(console, req, { action: 'cancel', target: id, detailOf, work })
    await background.reconcileOne(id)
    // Its webhook may have ended it before this poll.
    const poll = (await requestOf(req)).landed_at === null ? 'cancel_asked' : 'landed'
    return res.redirect(303, linkTo(`/requests/${id}`, { poll, at: clock().toISOString() }))
  })
  return router
}

function cancelPage({ id, source_name, status }: Request, cancelable: boolean): Markup {
  const what = cancelable
    ? html`<p>This asks ${foreign(source_name)} to cancel the job. It may still complete, and may be charged. A later
        poll or its webhook ends the request.</p>`
    : html`<p>It is ${status}. Either it has ended, or its source cannot cancel jobs or is no longer configured.</p>`
  const path = `/requests/${id}/cancel`
  return html`<h1>Request <span class="mono" title="${id}">${id.slice(0, 8)}</span></h1>
    ${confirmation({
      title: cancelable ? 'Cancel this job?' : 'It cannot be canceled',
      what,
      confirm: cancelable ? { path, label: 'Cancel the job', tone: 'danger' } : undefined,
      back: `/requests/${id}`,
    })}`
}
