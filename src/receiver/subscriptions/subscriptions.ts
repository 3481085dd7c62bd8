import type { SliceWithPages } from '../console/slice-pages.ts'
import { troubledSubscriptions } from './list-subscriptions.ts'
import { subscriptionProblems } from './subscription-problems.ts'

/** The subscriptions slice: posts changes of the feed to services. */
export const subscriptions: SliceWithPages = {
  name: 'subscriptions',
  start: async (deps) => (await import('./role.ts')).startSubscribing(deps),
  problems: async (tx, { now }) => subscriptionProblems(await troubledSubscriptions(tx), now),
  internal: async () => ({
    operations: (await import('./subscriptions-api.ts')).subscriptionOperations,
    pages: (await import('./subscriptions-page.ts')).subscriptionsRoutes,
  }),
}
