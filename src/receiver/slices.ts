import { archive } from './archive/archive.ts'
import type { SliceWithPages } from './console/slice-pages.ts'
import { subscriptions } from './subscriptions/subscriptions.ts'

/** The optional capabilities. One that is left out here is gone; the core works without it. */
export const slices: readonly SliceWithPages[] = [archive, subscriptions]
