import { z } from 'zod'
import { bool, httpUrl, nonEmpty, type SettingsReader } from '../../platform/settings.ts'

const samplers = [
  'always_on',
  'always_off',
  'traceidratio',
  'parentbased_always_on',
  'parentbased_always_off',
  'parentbased_traceidratio',
] as const

/** Where spans are sent. Read from the environment variables that OpenTelemetry's specification defines. */
export type TraceSettings = {
  endpoint: string
  sampler: (typeof samplers)[number]
  ratio: number
  /** Attributes of the sender, including `service.name`. */
  resource: Record<string, string>
}

const protocol = z.literal('http/protobuf', { error: 'must be http/protobuf: collectors accept it on port 4318' })
const ratio = z
  .string()
  .regex(/^(?:0?\.\d+|0|1(?:\.0+)?)$/, 'must be a number from 0 to 1')
  .transform(Number)
const resource = z.string().transform((text, context) => {
  const pairs = text.split(',').filter((pair) => pair.trim() !== '')
  const read = pairs.map((pair) => /^\s*([^=\s]+)\s*=\s*(.*?)\s*$/.exec(pair))
  try {
    return Object.fromEntries(
      read.map((pair) => [decodeURIComponent(pair?.[1] ?? '%'), decodeURIComponent(pair?.[2] ?? '')]),
    )
  } catch {
    context.addIssue({ code: 'custom', message: 'must be comma-separated key=value pairs, percent-encoded' })
    return z.NEVER
  }
})

/** Returns undefined if traces are off. The exporter itself reads headers, timeout, compression and certificates. */
export function readTraceSettings({ optional, withDefault }: SettingsReader): TraceSettings | undefined {
  const isDisabled = withDefault('OTEL_SDK_DISABLED', bool, false)
  const base = optional('OTEL_EXPORTER_OTLP_ENDPOINT', httpUrl)
  const endpoint =
    optional('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', httpUrl) ?? (base === undefined ? undefined : `${base}/v1/traces`)
  withDefault('OTEL_EXPORTER_OTLP_PROTOCOL', protocol, 'http/protobuf')
  const name = optional('OTEL_SERVICE_NAME', nonEmpty)
  const attributes = optional('OTEL_RESOURCE_ATTRIBUTES', resource) ?? {}
  const sampler = withDefault('OTEL_TRACES_SAMPLER', z.enum(samplers), 'parentbased_always_on')
  const share = withDefault('OTEL_TRACES_SAMPLER_ARG', ratio, 1)
  if (isDisabled || endpoint === undefined) return undefined
  const serviceName = name ?? attributes['service.name'] ?? 'mediadock'
  return { endpoint, sampler, ratio: share, resource: { ...attributes, 'service.name': serviceName } }
}
