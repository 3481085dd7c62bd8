import { readConfig } from '../../../src/config/config.ts'
import { createLogger } from '../../../src/platform/logger.ts'
import { startProvider } from '../../../src/provider/program.ts'

// A provider as a separate process, to be killed.
const { provider } = readConfig(process.env, ['provider'], {
  databaseUrl: undefined,
  keys: undefined,
  secretKey: undefined,
})
if (provider === undefined) throw new Error('no provider settings')
await startProvider({ settings: provider, logger: createLogger('error') })
process.stdout.write('ready\n')
