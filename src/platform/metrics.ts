import { collectDefaultMetrics, Registry } from 'prom-client'

/** Gauges with a counter's name, which metric linters reject. The same values exist per `type` under other names. */
const misnamed = ['nodejs_active_handles_total', 'nodejs_active_requests_total', 'nodejs_active_resources_total']

/** Creates a program's registry with the metrics of its process. */
export function createRegistry(): Registry {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  for (const name of misnamed) registry.removeSingleMetric(name)
  return registry
}
