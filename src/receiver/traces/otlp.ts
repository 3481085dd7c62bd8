import {
  diag,
  DiagLogLevel,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Attributes,
  type Context,
} from '@opentelemetry/api'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources'
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  RandomIdGenerator,
  SamplingDecision,
  TraceIdRatioBasedSampler,
  TracerProvider,
  type Sampler,
} from '@opentelemetry/sdk-trace'
import { withDeadline } from '../../platform/deadline.ts'
import type { Logger } from '../../platform/logger.ts'
import { version } from '../../platform/release.ts'
import type { TraceSettings } from '../domain/trace-settings.ts'
import type { SpanParent } from '../domain/trace.ts'

// The only file that imports OpenTelemetry's packages. traces.ts loads it if traces are configured.

/** The place of a span: below a parent span, or first in its trace. */
export type SpanRoot = { traceId: string; parent: SpanParent | undefined }

/** A span that has ended. It is written whole, so that no work for it happens before the answer. */
export type WrittenSpan = {
  name: string
  kind: 'server' | 'client' | 'consumer' | 'internal'
  /** Without a root, the span starts a new trace. */
  root: SpanRoot | undefined
  /** An id that is already known; a random one by default. */
  spanId?: string | undefined
  startMs: number
  endMs: number
  attributes: Readonly<Record<string, string | number | boolean | undefined>>
  error?: { type: string; message?: string | undefined } | undefined
}

export type SpanWriter = {
  /** Writes a span. Never waits and never throws. Returns the root for spans within it. */
  write: (span: WrittenSpan) => SpanRoot
  /** Returns the sampling decision for this root. It depends only on the trace id and the parent, in every process. */
  isSampled: (root: SpanRoot) => boolean
  close: (withinMs: number) => Promise<void>
}

const lastFlush = { minMs: 500, maxMs: 5000 }

const kinds = {
  server: SpanKind.SERVER,
  client: SpanKind.CLIENT,
  consumer: SpanKind.CONSUMER,
  internal: SpanKind.INTERNAL,
}

export function createSpanWriter(settings: TraceSettings, { logger }: { logger: Logger }): SpanWriter {
  const report = reportLosses(logger, new URL(settings.endpoint).host)
  const sampler = samplerOf(settings)
  // The SDK takes the ids of a span from this generator while it starts the span. So `lent` can set them.
  const random = new RandomIdGenerator()
  const lent: { traceId?: string | undefined; spanId?: string | undefined } = {}
  const provider = new TracerProvider({
    resource: defaultResource().merge(resourceFromAttributes({ 'service.version': version, ...settings.resource })),
    sampler,
    spanLimits: { attributeValueLengthLimit: 1024 },
    idGenerator: {
      generateTraceId: () => lent.traceId ?? random.generateTraceId(),
      generateSpanId: () => lent.spanId ?? random.generateSpanId(),
    },
    spanProcessors: [
      new BatchSpanProcessor({
        exporter: new OTLPTraceExporter({ url: settings.endpoint }),
        // About 8 MB. Spans beyond that are dropped, with a warning.
        maxQueueSize: 8192,
        maxExportBatchSize: 512,
        scheduledDelayMillis: 1000,
        exportTimeoutMillis: 10_000,
      }),
    ],
  })
  const tracer = provider.getTracer('mediadock', version)

  const write = ({ name, kind, root, spanId, startMs, endMs, attributes, error }: WrittenSpan): SpanRoot => {
    Object.assign(lent, { traceId: root?.traceId, spanId })
    const span = tracer.startSpan(
      name,
      { kind: kinds[kind], startTime: startMs, attributes: given(attributes) },
      contextOf(root),
    )
    if (error) {
      span.setAttribute('error.type', error.type)
      span.setStatus({ code: SpanStatusCode.ERROR, ...(error.message !== undefined && { message: error.message }) })
      span.recordException({ name: error.type, message: error.message ?? error.type }, endMs)
    }
    span.end(Math.max(startMs, endMs))
    const { traceId, spanId: id, traceFlags } = span.spanContext()
    return { traceId, parent: { traceId, spanId: id, isSampled: (traceFlags & TraceFlags.SAMPLED) !== 0 } }
  }
  return {
    write,
    isSampled: (root) => {
      const { decision } = sampler.shouldSample(contextOf(root), root.traceId, '', SpanKind.INTERNAL, {}, [])
      return decision === SamplingDecision.RECORD_AND_SAMPLED
    },
    close: async (withinMs) => {
      const ms = Math.min(lastFlush.maxMs, Math.max(lastFlush.minMs, withinMs))
      await withDeadline(provider.shutdown(), ms, 'sending the last spans').catch((error: unknown) =>
        report(String(error)),
      )
    },
  }
}

function contextOf(root: SpanRoot | undefined): Context {
  if (!root?.parent) return ROOT_CONTEXT
  const { traceId, spanId, isSampled } = root.parent
  const traceFlags = isSampled ? TraceFlags.SAMPLED : TraceFlags.NONE
  return trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags, isRemote: true })
}

function given(attributes: WrittenSpan['attributes']): Attributes {
  return Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined))
}

function samplerOf({ sampler, ratio }: TraceSettings): Sampler {
  const root = sampler.endsWith('always_on')
    ? new AlwaysOnSampler()
    : sampler.endsWith('always_off')
      ? new AlwaysOffSampler()
      : new TraceIdRatioBasedSampler(ratio)
  return sampler.startsWith('parentbased_') ? new ParentBasedSampler({ root }) : root
}

/** Logs lost spans, at most once a minute, so that a collector that is down does not fill the log. */
function reportLosses(logger: Logger, collector: string) {
  let silentUntil = 0
  const report = (detail: string) => {
    const now = performance.now()
    if (now < silentUntil) return
    silentUntil = now + 60_000
    const facts = { collector, detail: detail.slice(0, 500) }
    logger.warn(facts, 'traces may be lost: OpenTelemetry reports a problem (see detail); deliveries continue')
  }
  const nothing = () => {}
  diag.setLogger(
    { error: report, warn: report, info: nothing, debug: nothing, verbose: nothing },
    { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true },
  )
  return report
}
