import { pino } from 'pino'
import { expect, it } from 'vitest'
import { listen } from '../../../src/platform/http/http.ts'

it('names the setting of the host if this machine does not have the address', async () => {
  const options = { handler: () => {}, port: 0, setting: 'INTERNAL_PORT', logger: pino({ level: 'silent' }) }
  // 192.0.2.0/24 is reserved for documentation (RFC 5737).
  await expect(listen({ ...options, host: '192.0.2.1' })).rejects.toThrow(
    'port 0 on 192.0.2.1 cannot be opened, because this machine does not have the address: correct INTERNAL_HOST',
  )
})
