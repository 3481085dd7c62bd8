import fc from 'fast-check'

/** How many requests, webhook ids and bodies a sequence draws from: few, so that they meet. */
export const requestCount = 4

/** The signer: the key that owns the request, another one by its name, or a forger. */
export type Signer = 'owner' | 'live' | 'sandbox' | 'late' | 'forger'

export type Webhook = {
  do: 'webhook'
  request: number
  says: 'OK' | 'ERROR' | 'garbage'
  /** Which of the bodies that say so. */
  variant: number
  /** Which webhook id of the sequence: the same one comes again, with the same body or another. */
  id: number
  signer: Signer
  /** Age of the signature by the provider's clock. */
  ageSeconds: number
  /** True if the process that stored it lands it from memory. Otherwise it waits for a claim. */
  handedOver: boolean
}

export type Flaw =
  | '500'
  | '404'
  | '429'
  | '429 with Retry-After'
  | '401'
  | '403'
  | 'html'
  | 'another request'
  | 'no url'
  | 'NUL'
  | 'half a pixel'
  | 'reset'

export type Command =
  | Webhook
  /** A webhook of another source for a request that has a row here. */
  | { do: 'foreign webhook'; request: number; says: 'OK' | 'ERROR'; id: number }
  | { do: 'finish'; request: number; as: 'completed' | 'failed' | 'canceled'; outputs: number }
  | { do: 'falter'; flaw: Flaw; calls: number }
  | { do: 'track'; request: number; keyNamed: boolean; by: 'insert' | 'api' }
  | { do: 'work' }
  | { do: 'reconcile' }
  /** The process dies after it has claimed deliveries. */
  | { do: 'crash' }
  /** A run of the reconciler stalls after its calls, and continues after others have taken over. */
  | { do: 'stall' }
  | { do: 'unstall' }
  | { do: 'everything at once' }
  | { do: 'replay'; delivery: number; dryRun: boolean }
  | { do: 'verify quarantine' }
  /** An operator takes a key out of the keys; all of them are there again with the next verifying of the quarantine. */
  | { do: 'remove key'; name: 'live' | 'sandbox' }
  | { do: 'wait'; seconds: number }
  | { do: 'clock jumps back'; seconds: number }

const request = fc.nat(requestCount - 1)
const flaws: Flaw[] = [
  '500',
  '404',
  '429',
  '429 with Retry-After',
  '401',
  '403',
  'html',
  'another request',
  'no url',
  'NUL',
  'half a pixel',
  'reset',
]

const webhook: fc.Arbitrary<Command> = fc.record({
  do: fc.constant('webhook' as const),
  request,
  says: fc.oneof(
    { weight: 6, arbitrary: fc.constant('OK' as const) },
    { weight: 3, arbitrary: fc.constant('ERROR' as const) },
    { weight: 1, arbitrary: fc.constant('garbage' as const) },
  ),
  variant: fc.nat(1),
  id: fc.nat(3),
  signer: fc.oneof(
    { weight: 7, arbitrary: fc.constant<Signer>('owner') },
    { weight: 3, arbitrary: fc.constantFrom<Signer>('live', 'sandbox', 'late', 'forger') },
  ),
  ageSeconds: fc.oneof(
    { weight: 9, arbitrary: fc.constant(0) },
    { weight: 1, arbitrary: fc.constantFrom(299, 300, 301, 900, -300, -302) },
  ),
  handedOver: fc.oneof({ weight: 2, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
})

const foreignWebhook: fc.Arbitrary<Command> = fc.record({
  do: fc.constant('foreign webhook' as const),
  request,
  says: fc.constantFrom('OK' as const, 'ERROR' as const),
  id: fc.nat(3),
})

const finish: fc.Arbitrary<Command> = fc.record({
  do: fc.constant('finish' as const),
  request,
  as: fc.constantFrom('completed' as const, 'completed' as const, 'failed' as const, 'canceled' as const),
  outputs: fc.integer({ min: 1, max: 4 }),
})

/** The commands of a sequence; `trouble` is the weight of flaws, stalls, crashes and jumps against ordinary work. */
export function commands({ trouble }: { trouble: number }): fc.Arbitrary<Command[]> {
  const command = fc.oneof(
    { weight: 12, arbitrary: webhook },
    { weight: 5, arbitrary: finish },
    { weight: 2, arbitrary: foreignWebhook },
    {
      weight: 3,
      arbitrary: fc.record({
        do: fc.constant('track' as const),
        request,
        keyNamed: fc.boolean(),
        by: fc.constantFrom('insert' as const, 'api' as const),
      }),
    },
    { weight: 5, arbitrary: fc.constant<Command>({ do: 'work' }) },
    { weight: 3, arbitrary: fc.constant<Command>({ do: 'reconcile' }) },
    { weight: 2, arbitrary: fc.constant<Command>({ do: 'everything at once' }) },
    {
      weight: 2,
      arbitrary: fc.record({ do: fc.constant('replay' as const), delivery: fc.nat(7), dryRun: fc.boolean() }),
    },
    { weight: 1, arbitrary: fc.constant<Command>({ do: 'verify quarantine' }) },
    {
      weight: 1,
      arbitrary: fc.record({
        do: fc.constant('remove key' as const),
        name: fc.constantFrom('live' as const, 'sandbox' as const),
      }),
    },
    {
      weight: 4,
      arbitrary: fc.record({
        do: fc.constant('wait' as const),
        seconds: fc.constantFrom(1, 5, 7, 20, 46, 62, 125, 310, 1200),
      }),
    },
    {
      weight: trouble,
      arbitrary: fc.record({
        do: fc.constant('falter' as const),
        flaw: fc.constantFrom(...flaws),
        calls: fc.integer({ min: 1, max: 4 }),
      }),
    },
    { weight: trouble, arbitrary: fc.constant<Command>({ do: 'crash' }) },
    { weight: trouble, arbitrary: fc.constant<Command>({ do: 'stall' }) },
    { weight: trouble, arbitrary: fc.constant<Command>({ do: 'unstall' }) },
    {
      weight: trouble,
      arbitrary: fc.record({
        do: fc.constant('clock jumps back' as const),
        seconds: fc.constantFrom(1, 2, 30, 61, 400, 3600),
      }),
    },
  )
  return fc.array(command, { minLength: 3, maxLength: 16, size: 'max' })
}
