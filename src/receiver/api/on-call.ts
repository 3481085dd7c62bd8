import { z } from 'zod'
import { problemSchema, readProblems } from '../on-call/read-problems.ts'
import { readingOptions } from '../on-call/reading.ts'
import type { ReceiverDeps } from '../program.ts'
import { auditEntrySchema, auditListSchema, listAudit } from '../queries/audit.ts'
import { causeSchema, readParkedCauses, readQuarantineCauses } from '../queries/causes.ts'
import { parseFilters } from '../queries/filters.ts'
import { find, findFiltersSchema, foundSchema } from '../queries/find.ts'
import { giveUpSchema, listGiveUps } from '../queries/give-ups.ts'
import { keySchema, readKeys } from '../queries/keys.ts'
import { minutesFiltersSchema, minutesSchema, readMinutes } from '../queries/minutes.ts'
import { pageSchema } from '../queries/page.ts'
import { responses, type Operation } from './operation.ts'
import { sendList } from './send-list.ts'

/** The calls that answer an on-call engineer's first questions. */
export function onCallOperations(deps: ReceiverDeps): Operation[] {
  const { db, clock } = deps
  return [
    whole('/problems', {
      operationId: 'listProblems',
      summary: 'Present problems as sentences, the most severe first',
      item: problemSchema,
      read: async () => readProblems(db, await readingOptions(deps)),
    }),
    whole('/keys', {
      operationId: 'listKeys',
      summary: 'The keys, each with its last match, its calls and those of its account',
      item: keySchema,
      read: async () => readKeys(db, await readingOptions(deps)),
    }),
    whole('/give-ups', {
      operationId: 'listGiveUps',
      summary: 'Webhooks that failed here and were not accepted since, and when the provider gives up',
      item: giveUpSchema,
      read: () => listGiveUps(db, clock()),
    }),
    whole('/quarantine/causes', {
      operationId: 'listQuarantineCauses',
      summary: 'The reasons why quarantined arrivals were refused',
      item: causeSchema,
      read: () => readQuarantineCauses(db),
    }),
    whole('/parked/causes', {
      operationId: 'listParkedCauses',
      summary: 'The reasons why deliveries are parked',
      item: causeSchema,
      read: () => readParkedCauses(db),
    }),
    searchOperation(deps),
    auditOperation(deps),
    minutesOperation(deps),
  ]
}

type Whole<T> = { operationId: string; summary: string; item: z.ZodType<T>; read: () => Promise<readonly T[]> }

/** A list that is always short, so it has no pages. */
function whole<T>(path: string, { operationId, summary, item, read }: Whole<T>): Operation {
  const schema = z.object({ data: z.array(item) })
  return {
    method: 'get',
    path,
    document: { operationId, summary, responses: responses({ 200: { description: 'All of them', schema } }) },
    answer: async (_req, res) => res.json({ data: await read() }),
  }
}

function auditOperation(deps: ReceiverDeps): Operation {
  return {
    method: 'get',
    path: '/audit',
    document: {
      operationId: 'listAudit',
      summary: 'Who did what from the console, the API and the command line, newest first',
      requestParams: { query: auditListSchema },
      responses: responses(
        { 200: { description: 'One page', schema: pageSchema(auditEntrySchema) } },
        'invalid_filter',
      ),
    },
    answer: async (req, res) => {
      const wanted = parseFilters(auditListSchema, req.query)
      await sendList(deps, res, (from) => listAudit(from, wanted))
    },
  }
}

function searchOperation(deps: ReceiverDeps): Operation {
  const {
    clock,
    settings: { stuckAfterSeconds },
  } = deps
  return {
    method: 'get',
    path: '/search',
    document: {
      operationId: 'search',
      summary: 'Search by id or metadata, including refused arrivals that never landed',
      requestParams: { query: findFiltersSchema },
      responses: responses(
        { 200: { description: 'The findings, grouped by kind', schema: foundSchema } },
        'invalid_filter',
      ),
    },
    answer: async (req, res) => {
      const wanted = parseFilters(findFiltersSchema, req.query)
      await sendList(deps, res, (from) => find(from, wanted, { now: clock(), stuckAfterSeconds }))
    },
  }
}

function minutesOperation({ db, clock }: ReceiverDeps): Operation {
  return {
    method: 'get',
    path: '/minutes',
    document: {
      operationId: 'listMinutes',
      summary: 'Figures of each minute, for charts, oldest first',
      description: 'The last three hours by default, at most 31 days.',
      requestParams: { query: minutesFiltersSchema },
      responses: responses(
        { 200: { description: 'The points, and the starts of receivers', schema: minutesSchema } },
        'invalid_filter',
      ),
    },
    answer: async (req, res) => res.json(await readMinutes(db, parseFilters(minutesFiltersSchema, req.query), clock())),
  }
}
