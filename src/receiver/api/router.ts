import { Router } from 'express'
import { z } from 'zod'
import { methodNotAllowed } from '../../platform/http/http.ts'
import type { ReceiverDeps } from '../program.ts'
import { arrivalOperations } from './arrivals.ts'
import { deliveryOperations } from './deliveries.ts'
import { createFeedWatch } from './feed-watch.ts'
import { feedOperations } from './feed.ts'
import { generationOperations } from './generations.ts'
import { issueOperations, onCallOperations } from './on-call.ts'
import { openApiDocument, type Tag } from './openapi.ts'
import { handlerOf, type Operation, shown } from './operation.ts'
import { providerOperations } from './provider.ts'
import { reconcilerOperations } from './reconciler.ts'
import { requestOperations } from './requests.ts'
import { resultOperations } from './results.ts'

/** Builds the router of the JSON API, below `/api` of the internal listener. Access is checked before it. */
export function apiRouter(deps: ReceiverDeps, ofSlices: readonly Operation[][]): Router {
  // Built at the first request for it, so that the start does not wait.
  let document: object | undefined
  const { db, settings, logger, signal } = deps
  const watch = createFeedWatch({ db, databaseUrl: settings.databaseUrl, logger, signal })
  const operations: Operation[] = [
    ...tagged('Generations', generationOperations(deps, watch), requestOperations(deps)),
    ...tagged('Provider', providerOperations(deps)),
    ...tagged('Results', resultOperations(deps, watch), feedOperations(deps, watch), ...ofSlices),
    ...tagged('Deliveries', deliveryOperations(deps), arrivalOperations(deps)),
    ...tagged('On-call', issueOperations(deps), onCallOperations(deps), reconcilerOperations(deps)),
    ...tagged('This API', [
      shown('/openapi.json', {
        operationId: 'describe',
        summary: 'This document',
        answer: { description: 'OpenAPI 3.1', schema: z.looseObject({ openapi: z.string() }) },
        read: async () => (document ??= openApiDocument(operations)),
      }),
    ]),
  ]
  const router = Router({ caseSensitive: true, strict: true })
  for (const [path, group] of Map.groupBy(operations, ({ path }) => toExpress(path))) {
    for (const operation of group) router[operation.method](path, handlerOf(operation, deps.logger))
    router.all(
      path,
      methodNotAllowed(...group.flatMap(({ method }) => (method === 'get' ? ['GET', 'HEAD'] : ['POST']))),
    )
  }
  return Router().use('/api', router)
}

function tagged(tag: Tag, ...groups: Operation[][]): Operation[] {
  return groups.flat().map((operation) => ({ ...operation, tags: [tag] }))
}

function toExpress(path: string): string {
  return path.replaceAll(/\{(\w+)\}/g, ':$1')
}
