import { expect, it } from 'vitest'
import { testServers, withTestDatabase } from './database.ts'
import { describeOnPackaged } from './own-packaged-postgres.ts'

describeOnPackaged('the packaged server', () => {
  it('has JIT on, as usual in production', async () => {
    const { sql } = await withTestDatabase('packaged')
    expect(await sql`select current_setting('jit') as jit, pg_jit_available() as available`).toEqual([
      { jit: 'on', available: true },
    ])
    expect(testServers).toEqual(['embedded', 'packaged'])
  })
})
