import { collectDefaultMetrics, Registry } from 'prom-client'

/** Gauges with the name of a counter, which checkers of metrics object to; each has its sum over `type` without them. */
const misnamed = ['nodejs_active_handles_total', 'nodejs_active_requests_total', 'nodejs_active_resources_total']

/** A registry of its own for each program, so that two of them can live in one process. */
export function createRegistry({ processDefaults }: { processDefaults: boolean }): Registry {
  const registry = new Registry()
  if (processDefaults) {
    collectDefaultMetrics({ register: registry })
    for (const name of misnamed) registry.removeSingleMetric(name)
  }
  return registry
}
