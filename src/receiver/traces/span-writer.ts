import type { Logger } from '../../platform/logger.ts'
import type { TraceSettings } from '../domain/trace-settings.ts'
import type { SpanWriter } from './span.ts'

const packages =
  '@opentelemetry/api @opentelemetry/exporter-trace-otlp-proto @opentelemetry/resources @opentelemetry/sdk-trace'

/** Loads the packages that send spans. Undefined if they are not installed: the receiver runs without traces then. */
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
        `traces are configured, but their packages are not installed: run npm i ${packages}. Starting without`,
      )
    else logger.error({ err: error }, 'traces are configured and cannot be sent. Starting without')
    return undefined
  }
}
