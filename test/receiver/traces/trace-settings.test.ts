import { expect, it } from 'vitest'
import { settingsReader, type ProcessEnvironment } from '../../../src/platform/settings.ts'
import { readTraceSettings } from '../../../src/receiver/domain/trace-settings.ts'

function read(env: ProcessEnvironment) {
  const reader = settingsReader(env)
  return { settings: readTraceSettings(reader), problems: reader.problems.map(({ name }) => name) }
}

const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318/' }

it('exports nothing without a collector or while disabled', () => {
  expect(read({})).toEqual({ settings: undefined, problems: [] })
  expect(read({ OTEL_SERVICE_NAME: 'media', OTEL_TRACES_SAMPLER: 'always_on' })).toEqual({
    settings: undefined,
    problems: [],
  })
  expect(read({ ...endpoint, OTEL_SDK_DISABLED: 'true' })).toEqual({ settings: undefined, problems: [] })
  expect(read({ ...endpoint, OTEL_SDK_DISABLED: 'false' }).settings?.endpoint).toBe('http://collector:4318/v1/traces')
})

it('has the defaults of the specification', () => {
  expect(read(endpoint).settings).toEqual({
    endpoint: 'http://collector:4318/v1/traces',
    sampler: 'parentbased_always_on',
    ratio: 1,
    resource: { 'service.name': 'mediadock' },
  })
})

it('uses the URL for traces unchanged', () => {
  expect(
    read({ ...endpoint, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'https://traces.test/api/otlp' }).settings?.endpoint,
  ).toBe('https://traces.test/api/otlp')
})

it('names the service by its own setting, then by the attributes', () => {
  const OTEL_RESOURCE_ATTRIBUTES = 'service.name=named, deployment.environment.name=prod%2Ceu ,team=a=b,'
  expect(read({ ...endpoint, OTEL_RESOURCE_ATTRIBUTES }).settings?.resource).toEqual({
    'service.name': 'named',
    'deployment.environment.name': 'prod,eu',
    team: 'a=b',
  })
  expect(
    read({ ...endpoint, OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME: 'own' }).settings?.resource['service.name'],
  ).toBe('own')
})

it.each([
  ['OTEL_EXPORTER_OTLP_ENDPOINT', 'collector:4318'],
  ['OTEL_EXPORTER_OTLP_PROTOCOL', 'grpc'],
  ['OTEL_RESOURCE_ATTRIBUTES', 'alone'],
  ['OTEL_RESOURCE_ATTRIBUTES', 'a=%zz'],
  ['OTEL_TRACES_SAMPLER', 'jaeger_remote'],
  ['OTEL_TRACES_SAMPLER_ARG', '1.5'],
  ['OTEL_TRACES_SAMPLER_ARG', '-0.1'],
  ['OTEL_SDK_DISABLED', 'yes'],
])('refuses %s=%s by its name', (name, value) => {
  expect(read({ ...endpoint, [name]: value }).problems).toEqual([name])
})

it.each([
  ['0', 0],
  ['0.25', 0.25],
  ['.5', 0.5],
  ['1', 1],
  ['1.0', 1],
])('accepts a share of %s', (text, ratio) => {
  expect(read({ ...endpoint, OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: text })).toMatchObject({
    settings: { sampler: 'traceidratio', ratio },
    problems: [],
  })
})
