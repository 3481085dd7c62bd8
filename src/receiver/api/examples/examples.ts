import type { CallExamples } from './call-examples.ts'
import { deliveries } from './deliveries.ts'
import { generations } from './generations.ts'
import { onCall } from './on-call.ts'
import { provider } from './provider.ts'
import { results } from './results.ts'

/** The examples of every call that answers JSON, by operationId. */
export const examples: Readonly<Record<string, CallExamples>> = {
  ...generations,
  ...provider,
  ...results,
  ...deliveries,
  ...onCall,
  describe: { 200: { openapi: '3.1.0', info: { title: 'mediadock internal API', version: '0.1.0' }, paths: {} } },
}
