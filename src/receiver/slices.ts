import { archive } from './archive/archive.ts'
import type { SliceWithPages } from './console/slice-pages.ts'
import { subscriptions } from './subscriptions/subscriptions.ts'

/** The optional capabilities. The core works without any of them. */
export const slices: readonly SliceWithPages[] = [archive, subscriptions]
