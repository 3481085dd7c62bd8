import type { Report } from '../../src/receiver/domain/report.ts'
import { receivedResultSchema } from '../../src/receiver/sources/generation-queue/received.ts'
import { reportOfResult } from '../../src/receiver/sources/generation-queue/to-report.ts'

/** The report of a body of `GET /v1/requests/{id}`. */
export function reportOf(result: object): Report {
  return reportOfResult(receivedResultSchema.parse(result))
}
