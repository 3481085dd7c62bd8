import { readConfig } from '../src/config/config.ts'
import { createLogger } from '../src/platform/logger.ts'
import { startProvider } from '../src/provider/program.ts'

/** The real provider with its logging, as a separate process: `node bench/provider-process.ts`. */
const { provider } = readConfig(process.env, ['provider'], {
  databaseUrl: undefined,
  keys: undefined,
  secretKey: undefined,
})
if (provider === undefined) throw new Error('no provider settings')
const program = await startProvider({ settings: provider, logger: createLogger('info') })
process.send?.({ url: program.urls['api'] })
process.once('SIGTERM', () => void program.stop(1000).then(() => process.exit(0)))
