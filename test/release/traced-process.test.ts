import fs from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { startProductionReceiver } from '../start/support/receiver-process.ts'
import { startCollector } from '../support/collector.ts'
import { eventually } from '../support/eventually.ts'
import { deliver, failed } from '../support/webhooks.ts'

const traceId = '4bf92f3577b34da6a3ce929d0e0e4736'
const traceparent = `00-${traceId}-00f067aa0ba902b7-01`

/** Lists the OpenTelemetry modules that a process has loaded. */
const watchLoads = `import { registerHooks } from 'node:module'
registerHooks({
  load: (url, context, next) => {
    const name = /@opentelemetry[/]([a-z-]+)/.exec(url)?.[1]
    if (name) process.stderr.write('loaded ' + name + '\\n')
    return next(url, context)
  },
})
`

describe('a process', () => {
  async function startWatched(env: Record<string, string>) {
    const folder = await fs.mkdtemp(path.join(path.resolve(import.meta.dirname, '../..'), 'node_modules/.watch-'))
    onTestFinished(() => fs.rm(folder, { recursive: true, force: true }))
    const hooks = path.join(folder, 'hooks.mjs')
    await fs.writeFile(hooks, watchLoads)
    const started = await startProductionReceiver({ NODE_OPTIONS: `--import=${hooks}`, ...env })
    return {
      ...started,
      loaded: () => new Set([...started.program.output().matchAll(/^loaded (.*)$/gm)].map(([, name]) => name)),
    }
  }

  it('without traces loads no OpenTelemetry package, and still logs the trace id of a delivery', async () => {
    const { program, base, loaded } = await startWatched({
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9',
      OTEL_SDK_DISABLED: 'true',
    })
    const delivery = { secret: 'whsec_first_secret', headers: { traceparent } }
    expect((await deliver(`${base}/webhooks`, failed().body, delivery)).status).toBe(200)
    expect((await deliver(`${base}/webhooks`, failed().body, { secret: 'whsec_first_secret' })).status).toBe(200)
    await eventually(() => (program.output().match(/"msg":"webhook answered"/g) ?? []).length === 2)
    // prom-client loads the API, which does nothing alone.
    expect([...loaded()]).toEqual(['api'])
    const linesWithTrace = program.output().match(/"trace_id":"\w+"/g)
    expect(linesWithTrace).toEqual([`"trace_id":"${traceId}"`])
  })

  it('with traces sends them, and nothing else', async () => {
    const collector = await startCollector()
    onTestFinished(collector.close)
    const { program, base, loaded } = await startWatched({
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      OTEL_SERVICE_NAME: 'from-outside',
    })
    expect((await deliver(`${base}/webhooks`, failed().body, { secret: 'whsec_first_secret' })).status).toBe(200)
    await eventually(() => collector.spans().some(({ name }) => name === 'land'))
    expect(collector.spans()[0]?.resource['service.name']).toBe('from-outside')
    expect(loaded()).toContain('sdk-trace')
    expect([...loaded()].filter((name) => name?.includes('instrumentation'))).toEqual([])
    program.kill('SIGTERM')
    expect(await program.exit).toEqual({ code: 0, signal: null })
  })
})
