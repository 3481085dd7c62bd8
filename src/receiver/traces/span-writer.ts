import type { Logger } from '../../platform/logger.ts'
import type { TraceSettings } from '../domain/trace-settings.ts'
import type { SpanWriter } from './span.ts'

const packages =
  '@opentelemetry/api @opentelemetry/exporter-trace-otlp-proto @opentelemetry/resources @opentelemetry/sdk-trace'

/** Loads what sends spans, only now; undefined where it cannot be had: nothing else needs it, so the start goes on. */
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
      logger.warn(`traces are asked for, and what sends them is not installed: npm i ${packages}; going on without`)
    else logger.error({ err: error }, 'traces are asked for and cannot be sent; going on without')
    return undefined
  }
}
