import type { Logger } from '../../platform/logger.ts'
import type { TraceSettings } from '../domain/trace-settings.ts'
import { storedSpanId, traceOf, type DeliveryTraces, type Traced } from '../domain/trace.ts'
import type { Arrival } from '../intake/arrival-log.ts'
import type { ReceiverSettings } from '../settings.ts'
import type { SpanRoot, SpanWriter } from './otlp.ts'

export type Traces = DeliveryTraces & {
  arrived: (arrival: Arrival) => void
  close: (withinMs: number) => Promise<void>
}

/** Opens the traces. Undefined if they are not configured (nothing is loaded), or their packages cannot be loaded. */
export async function openTraces({ traces }: ReceiverSettings, logger: Logger): Promise<Traces | undefined> {
  const writer = traces && (await openSpanWriter(traces, { logger }))
  return writer && createTraces(writer)
}

/**
 * Creates one trace for each delivery, from its arrival to its row: `receive delivery` with `verify` and `accept`, and
 * below it `land`, in the process that lands it. Spans are written when they have ended, so deliveries do not wait
 * for them.
 *
 * An arrival that is not authentic gets a new trace: its traceparent is not trusted either.
 */
function createTraces(writer: SpanWriter): Traces {
  const arrived = ({ row, traceparent, readMs, verifiedMs }: Arrival) => {
    const { status, outcome, reason, delivery_id: deliveryId, key_name: keyName, ack_ms: ackMs } = row
    const traced = keyName !== undefined && deliveryId !== undefined ? { deliveryId, traceparent } : undefined
    const isStored = outcome === 'accepted' || outcome === 'parked'
    const startMs = row.arrived_at.getTime()
    const failure = status < 400 ? undefined : (reason ?? String(status))
    // By OpenTelemetry's conventions for servers, a 4xx is not an error of the server.
    const error = status >= 500 && failure !== undefined ? { type: failure } : undefined
    const root = writer.write({
      name: 'receive delivery',
      kind: 'server',
      root: traced && traceOf(traced),
      spanId: traced && isStored ? storedSpanId(traced.deliveryId) : undefined,
      startMs,
      endMs: startMs + ackMs,
      attributes: {
        'http.request.method': 'POST',
        'http.route': '/webhooks',
        'url.path': '/webhooks',
        'http.response.status_code': status,
        'http.request.body.size': row.bytes,
        'client.address': row.remote,
        'error.type': failure,
        ...messageOf(row.webhook_id, 'receive'),
        'mediadock.delivery_id': deliveryId,
        'mediadock.request_id': row.request_id,
        'mediadock.key_name': keyName,
        'mediadock.outcome': outcome,
        'mediadock.reason': reason,
      },
      error,
    })
    const within = (name: string, fromMs: number, toMs: number, failed: boolean) =>
      writer.write({
        name,
        kind: 'internal',
        root,
        startMs: startMs + fromMs,
        endMs: startMs + toMs,
        attributes: { 'mediadock.delivery_id': deliveryId },
        error: failed && failure !== undefined ? { type: failure } : undefined,
      })
    if (readMs === undefined) return
    within('verify', readMs, verifiedMs ?? ackMs, verifiedMs === undefined)
    if (verifiedMs !== undefined) within('accept', verifiedMs, ackMs, status !== 200)
  }

  /** Returns the span of the stored arrival, with the sampling decision that was made there. */
  const arrivalOf = (of: Traced): SpanRoot => {
    const root = traceOf(of)
    const { traceId } = root
    return { traceId, parent: { traceId, spanId: storedSpanId(of.deliveryId), isSampled: writer.isSampled(root) } }
  }

  return {
    arrived,
    landed: (of, { requestId, webhookId, status, media, outcome, failure, ms }) => {
      const endMs = Date.now()
      writer.write({
        name: 'land',
        kind: 'consumer',
        root: arrivalOf(of),
        startMs: endMs - ms,
        endMs,
        attributes: {
          ...messageOf(webhookId, 'process'),
          'db.system.name': 'postgresql',
          'mediadock.delivery_id': of.deliveryId,
          'mediadock.request_id': requestId,
          'mediadock.status': status,
          'mediadock.media': media,
          'mediadock.outcome': outcome,
        },
        error: failure === undefined ? undefined : { type: failure },
      })
    },
    close: writer.close,
  }
}

function messageOf(webhookId: string | undefined, operation: 'receive' | 'process') {
  return {
    'messaging.system': 'mediadock',
    'messaging.destination.name': 'deliveries',
    'messaging.operation.type': operation,
    'messaging.operation.name': operation === 'receive' ? 'receive delivery' : 'land',
    'messaging.message.id': webhookId,
  }
}

const packages =
  '@opentelemetry/api @opentelemetry/exporter-trace-otlp-proto @opentelemetry/resources @opentelemetry/sdk-trace'

/** Loads the packages that send spans. Undefined if that fails: the receiver then runs without traces. */
export async function openSpanWriter(
  settings: TraceSettings,
  { logger }: { logger: Logger },
): Promise<SpanWriter | undefined> {
  try {
    const { createSpanWriter } = await import('./otlp.ts')
    return createSpanWriter(settings, { logger })
  } catch (error) {
    const isMissing = error instanceof Error && 'code' in error && error.code === 'ERR_MODULE_NOT_FOUND'
    if (isMissing)
      logger.warn(
        `traces are configured, but their packages are not installed: run npm i ${packages}. Starting without traces`,
      )
    else logger.error({ err: error }, 'traces are configured, but cannot be sent. Starting without traces')
    return undefined
  }
}
