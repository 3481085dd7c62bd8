import assert from 'node:assert/strict'
import { createHash, randomUUID } from 'node:crypto'
import { trackRequest } from '../../../../src/receiver/api/track.ts'
import { deliveryId, parseBody } from '../../../../src/receiver/domain/delivery.ts'
import { claimDeliveries } from '../../../../src/receiver/landing/inbox.ts'
import { replayDelivery } from '../../../../src/receiver/landing/replay.ts'
import { verifyQuarantine } from '../../../../src/receiver/on-call/verify-quarantine.ts'
import * as reconciler from '../../../../src/receiver/reconciling/reconciler.ts'
import { toleranceSeconds } from '../../../../src/wire/signature.ts'
import { headersFor } from '../../../support/webhooks.ts'
import { workOnce } from '../../../support/work-once.ts'
import { requestCount, type Command, type Webhook } from './commands.ts'
import { holdAlways, holdEnd, holdForward, holdQuota, holdNotices, type Acknowledged } from './invariants.ts'
import { createProvider, linkOf, type KeyName, type Kind, type Request } from './provider.ts'
import { forget, take, type Snapshot } from './snapshot.ts'
import { stall, type Stalled } from './stall.ts'
import { allKeys, engineSecret, fewKeys, keysWithout, secrets, type World } from './world.ts'

type Refused = { webhookId: string; body: Buffer; signer: KeyName | 'forger'; inWindow: boolean }

const shapes: readonly { kind: Kind; owner: KeyName }[] = [
  { kind: 'image', owner: 'live' },
  { kind: 'video', owner: 'live' },
  { kind: 'audio', owner: 'sandbox' },
  { kind: 'image', owner: 'late' },
]

const outside: ReadonlySet<Command['do']> = new Set(['finish', 'falter', 'remove key', 'wait', 'clock jumps back'])

/** Runs one sequence against a fresh set of requests and holds every invariant after each command. */
export async function runSequence(world: World, commands: readonly Command[]): Promise<void> {
  const sequence = startSequence(world)
  try {
    for (const command of commands) await sequence.step(command)
    await sequence.drain()
  } finally {
    await sequence.end()
  }
}

function startSequence(world: World) {
  const { receiver, quarantine } = world
  const requests: Request[] = Array.from({ length: requestCount }, (_, at) => ({
    id: randomUUID(),
    ...(shapes[at] ?? shapes[0]!),
    truth: { is: 'running' },
  }))
  const webhookIds = Array.from({ length: 4 }, () => randomUUID())
  let trueMs = Date.now()
  let offsetMs = 0
  const provider = createProvider(requests, () => trueMs)
  const now = () => new Date(trueMs + offsetMs)
  world.use({ keys: fewKeys, now, providerFetch: provider.fetch })
  world.restart()

  const acknowledged: Acknowledged = new Map()
  let refused: Refused[] = []
  let stalled: Stalled[] = []
  let before: Snapshot = { requests: [], media: [], deliveries: [], inbox: [], attempts: [], quarantine: [] }
  const known = (signer: KeyName | 'forger') =>
    receiver.keys().defaultSource.secrets.some(({ name }) => name === signer)
  const store = (webhookId: string, body: Buffer) =>
    acknowledged.set(deliveryId(webhookId, body), { webhookId, sha: createHash('sha256').update(body).digest('hex') })
  const isStored = (webhookId: string, body: Buffer) => {
    return acknowledged.has(deliveryId(webhookId, body))
  }

  const webhook = async (command: Webhook) => {
    const request = requests[command.request]!
    const webhookId = webhookIds[command.id]!
    const body = bodyOf(request, command)
    const signer = command.signer === 'owner' ? request.owner : command.signer
    const t = Math.floor(trueMs / 1000) - command.ageSeconds
    const inWindow = Math.abs(Math.floor(now().getTime() / 1000) - t) <= toleranceSeconds
    world.use({ handsOver: command.handedOver })
    const answer = await world.post(body, headersFor(body, { webhookId, secret: secrets[signer], t }))
    if (!known(signer) || !inWindow) {
      assert.equal(answer, 'invalid_signature')
      refused.push({ webhookId, body, signer, inWindow })
      return
    }
    const first = parseBody(receiver.keys().defaultSource, body).kind === 'unreadable' ? 'parked' : 'accepted'
    assert.equal(answer, isStored(webhookId, body) ? 'duplicate' : first)
    store(webhookId, body)
  }

  /** Signed by the receiver's clock. A request without a row would become one of the other source. */
  const foreignWebhook = async ({ request: at, says, id }: Extract<Command, { do: 'foreign webhook' }>) => {
    const request = requests[at]!
    if (!before.requests.some(({ request_id }) => request_id === request.id)) return
    const webhookId = webhookIds[id]!
    const body = bodyOf(request, { says, variant: 0 })
    const t = Math.floor(now().getTime() / 1000)
    const delivery = deliveryId(webhookId, body, 'engine')
    const answer = await world.post(body, headersFor(body, { webhookId, secret: engineSecret, t }), '/webhooks/engine')
    assert.equal(answer, acknowledged.has(delivery) ? 'duplicate' : 'accepted')
    acknowledged.set(delivery, { webhookId, sha: createHash('sha256').update(body).digest('hex') })
  }

  const verify = async () => {
    world.use({ keys: allKeys })
    await quarantine.runOnce()
    const authentic = refused.filter(({ signer, inWindow }) => inWindow && known(signer))
    const verified = await verifyQuarantine({ ...receiver, wake: () => {} })
    assert.deepEqual(verified, {
      checked: refused.length,
      accepted: authentic.length,
      refused: refused.length - authentic.length,
    })
    for (const { webhookId, body } of authentic) store(webhookId, body)
    refused = refused.filter((one) => !authentic.includes(one))
  }

  const replay = async (at: number, dryRun: boolean) => {
    const ids = [...acknowledged.keys()]
    const id = ids[at % ids.length]
    if (id === undefined) return
    assert.ok(await replayDelivery(receiver, id, { dryRun }))
    if (dryRun) assert.deepEqual(await take(world), before, 'a dry run changed something')
  }

  const track = async ({ id, owner }: Request, { keyNamed, by }: { keyNamed: boolean; by: 'insert' | 'api' }) => {
    if (by === 'api') {
      const environment = keyNamed ? receiver.keys().byName.get(owner)?.environment : undefined
      await trackRequest(
        receiver.db,
        { request_id: id, model: 'tracked', ...(keyNamed && { key_name: owner }) },
        { environment, now: receiver.time() },
      )
      return
    }
    await world.sql`insert into mediadock.requests (request_id, model, key_name) values (${id}, 'tracked', ${keyNamed ? owner : null})
      on conflict do nothing`
  }

  const perform = async (command: Command): Promise<unknown> => {
    switch (command.do) {
      case 'webhook':
        return webhook(command)
      case 'foreign webhook':
        return foreignWebhook(command)
      case 'finish': {
        const request = requests[command.request]!
        // A request that has ended at the provider stays ended.
        if (request.truth.is === 'running')
          request.truth =
            command.as === 'completed' ? { is: 'completed', outputs: command.outputs } : { is: command.as }
        return undefined
      }
      case 'falter':
        return provider.falter(command.flaw, command.calls)
      case 'track':
        return track(requests[command.request]!, command)
      case 'work':
        return workOnce(receiver)
      case 'reconcile':
        return reconciler.runOnce(receiver)
      case 'crash':
        return claimDeliveries(receiver.db, { limit: 500, maxBytes: Number.MAX_SAFE_INTEGER, now: receiver.time() })
      case 'stall':
        return stalled.push(
          await stall(receiver.fetchResult, (fetchResult) => reconciler.runOnce({ ...receiver, fetchResult })),
        )
      case 'unstall': {
        const rounds = stalled
        stalled = []
        return Promise.all(rounds.map(({ letGo }) => letGo()))
      }
      case 'everything at once':
        return Promise.all([
          workOnce(receiver),
          reconciler.runOnce(receiver),
          workOnce(receiver),
          reconciler.runOnce(receiver),
        ])
      case 'replay':
        return replay(command.delivery, command.dryRun)
      case 'verify quarantine':
        return verify()
      case 'remove key':
        return world.use({ keys: keysWithout(receiver.keys(), command.name) })
      case 'wait':
        trueMs += command.seconds * 1000
        return undefined
      case 'clock jumps back':
        offsetMs -= command.seconds * 1000
        return undefined
      default:
        return command satisfies never
    }
  }

  const step = async (...commands: readonly Command[]) => {
    for (const command of commands) await perform(command)
    // These touch the world around the receiver, and not the receiver.
    if (commands.every(({ do: what }) => outside.has(what))) return
    const after = await take(world)
    holdAlways(after, { requests, acknowledged })
    holdForward(before, after)
    holdNotices(before, after, world.notices.splice(0))
    holdQuota(provider.calls, provider.pauses)
    before = after
  }

  const isQuiet = () =>
    before.inbox.length === 0 &&
    before.requests.every((row) => row.landed_at !== null && row.next_poll_at === null && row.doubt_poll_at === null)

  /** A minute at least: by then there is a call again. */
  const secondsToNextPoll = () => {
    const times = before.requests
      .flatMap((row) => [row.next_poll_at, row.doubt_poll_at].map((at) => Date.parse(at ?? '')))
      .filter(Number.isFinite)
    return times.length === 0 ? 61 : Math.max(61, Math.ceil((Math.min(...times) - now().getTime()) / 1000))
  }

  /** With a healthy provider, ended requests and enough time, every request must land. */
  const drain = async () => {
    provider.recover()
    for (const request of requests) if (request.truth.is === 'running') request.truth = { is: 'completed', outputs: 2 }
    await step({ do: 'unstall' })
    await step({ do: 'verify quarantine' })
    // Two that wait for a call with each other's key never get it while both are polled at the same instant: the last rounds take one after the other.
    for (let round = 0; round < 40 && !isQuiet(); round += 1) {
      const seconds = round < 12 ? 3700 : secondsToNextPoll()
      await step({ do: 'work' }, { do: 'reconcile' }, { do: 'wait', seconds })
    }
    holdEnd(before, requests)
  }

  const end = async () => {
    await Promise.allSettled(stalled.map(({ letGo }) => letGo()))
    while ((await quarantine.runOnce()).more);
    await take(world)
    await forget(world)
  }
  return { step, drain, end }
}

function bodyOf(request: Request, { says, variant }: Pick<Webhook, 'says' | 'variant'>): Buffer {
  const { id, kind } = request
  switch (says) {
    case 'ERROR':
      return Buffer.from(
        JSON.stringify({
          request_id: id,
          status: 'ERROR',
          error: { code: 'GENERATION_FAILED', message: `no ${variant}` },
        }),
      )
    case 'OK': {
      const media = { url: linkOf(id, kind) }
      const output = { image: { images: [media] }, video: { video: media }, audio: { audio: media } }[kind]
      return Buffer.from(
        JSON.stringify({ request_id: id, status: 'OK', payload: { model: `a-${kind}`, output, cost: 7 + variant } }),
      )
    }
    case 'garbage':
      return Buffer.from(variant === 0 ? `nonsense ${id}` : JSON.stringify({ request_id: id, status: 'MAYBE' }))
    default:
      return says satisfies never
  }
}
