import type { Response } from 'express'
import type { Database } from '../../platform/postgres/postgres.ts'
import type { ReceiverDeps } from '../program.ts'

/** Answers a list. If it comes from a standby, a header gives the time of the standby's last change. */
export async function sendList<T>(
  { lists }: Pick<ReceiverDeps, 'lists'>,
  res: Response,
  list: (db: Database) => Promise<T>,
): Promise<void> {
  const { listed, asOf } = await lists(list)
  if (asOf !== undefined) res.set('x-mediadock-as-of', asOf.toISOString())
  res.json(listed)
}
