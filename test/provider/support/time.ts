import type { SQL } from '../../../src/platform/postgres/drizzle.ts'
import { timeOf } from '../../../src/platform/postgres/time.ts'

/** This moment, as statements take the time that replicas share. */
export const moment = (date: Date): SQL => timeOf(() => date)()
