import { createTestDatabase, type TestDatabase, type TestServer } from './database.ts'
import { startProviderStand, type ProviderStand } from './provider-stand.ts'
import { startTestReceiver, type TestReceiver, type TestReceiverOptions } from './receiver.ts'

export type WithReceiverOptions = Omit<TestReceiverOptions, 'databaseUrl'> & { server?: TestServer }

export type WithReceiver = {
  database: TestDatabase
  receiver: TestReceiver
  /** Ends all of it: what a hook returns, or `onTestFinished` is given. */
  stop: () => Promise<void>
}

/** A whole receiver on a new database. With `stand`, beside a stand-in for the provider that answers 404 by default. */
export async function withReceiver(
  options: WithReceiverOptions & { stand: true },
): Promise<WithReceiver & { stand: ProviderStand }>
export async function withReceiver(options?: WithReceiverOptions): Promise<WithReceiver>
export async function withReceiver({
  server,
  stand: isStandWanted = false,
  ...options
}: WithReceiverOptions & { stand?: boolean } = {}): Promise<WithReceiver & { stand?: ProviderStand }> {
  const database = await createTestDatabase(server)
  const stand = isStandWanted ? await startProviderStand() : undefined
  const receiver = await startTestReceiver({
    databaseUrl: database.url,
    ...(stand && { providerUrl: stand.url }),
    ...options,
  })
  const stop = async () => {
    await receiver.stop()
    await stand?.close()
    await database.drop()
  }
  return { database, receiver, stop, ...(stand && { stand }) }
}
