import { collectDefaultMetrics, Registry } from 'prom-client'

/** A registry of its own for each program, so that two of them can live in one process. */
export function createRegistry({ processDefaults }: { processDefaults: boolean }): Registry {
  const registry = new Registry()
  if (processDefaults) collectDefaultMetrics({ register: registry })
  return registry
}
