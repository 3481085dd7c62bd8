import { expect, it } from 'vitest'
import { overSql } from '../../src/client/over-sql.ts'

it.each([
  ['no rows', []],
  ['rows as arrays', [['{}']]],
])('overSql refuses a driver that returns %s, and says which it takes', async (_, rows) => {
  const driver = { query: async () => ({ rows }) }
  await expect(overSql(driver)(0, AbortSignal.timeout(1000))).rejects.toThrow(
    /returned no row as an object: pass a client of postgres\.js, or a Pool or Client of pg/,
  )
})
