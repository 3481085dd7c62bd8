import type { CallExamples } from '../api/examples/call-examples.ts'
import { at, position, positionBefore } from '../api/examples/story.ts'
import type { NewSubscription } from './acts.ts'
import type { Subscription } from './list-subscriptions.ts'

const name = 'gallery'
const url = 'https://gallery.example.com/changes'
/** Not a real secret. */
const secret = 'whsec_it_is_shown_here_and_nowhere_else'

const subscription = {
  name,
  url,
  state: 'active',
  position,
  filter: { sandbox: false, complete: true },
  retry_hours: 24,
  failures: 0,
  failing_since: null,
  next_attempt_at: at('03:00:04.236'),
  last_error: null,
  last_accepted_at: at('03:00:04.236'),
  paused_by: null,
  paused_at: null,
  stopped_at: null,
  stop_reason: null,
  created_at: at('02:30:00.118'),
  backlog: 0,
  oldest_unsent_at: null,
} satisfies Subscription

/** Examples of the calls, by operationId. */
export const subscriptionExamples: Readonly<Record<string, CallExamples>> = {
  listSubscriptions: { 200: { data: [subscription] } },
  addSubscription: {
    body: {
      name,
      url,
      retry_hours: 24,
      from: 'newest',
      filter: { sandbox: false, complete: true },
    } satisfies NewSubscription,
    201: { name, url, position: positionBefore, secret },
  },
  pauseSubscription: { body: {}, 200: { name, position } },
  resumeSubscription: { body: { from: positionBefore }, 200: { name, position: positionBefore } },
  testSubscription: {
    body: {},
    200: { name, ok: true, trouble: null, webhook_id: 'test-841a852f-34c2-4ce9-9f61-82660db6be4e' },
  },
  rollSubscription: { body: {}, 200: { name, secret } },
  removeSubscription: { body: {}, 200: { name, position } },
}
