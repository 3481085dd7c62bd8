const at = (time: string) => `2026-01-31T${time}Z`

const requestId = '2f0d6c1e-8f5b-4c3a-9d2e-000000000001'

/** Examples of members of the API, by name: one generation, which takes four seconds, from its submit to its result. */
export const exampleValues = {
  request_id: requestId,
  idempotency_key: '7d9f3c52-4b1e-4a86-9c03-5e2f8b6a1d47',
  external_id: requestId,
  source_name: 'generation-queue',
  model: 'aurora-image',
  key_name: 'live',
  metadata: { order: 1 },
  input: { prompt: 'a sunrise over snow', aspect_ratio: '16:9' },
  output: { images: [{ url: 'https://media.example.com/sunrise.png', width: 1280, height: 720 }] },
  original_url: 'https://media.example.com/sunrise.png',
  width: 1280,
  height: 720,
  cost: 4,
  progress: 40,
  polls: 1,
  tracked_at: at('03:00:00.064'),
  created_at: at('03:00:00.000'),
  completed_at: at('03:00:04.000'),
  received_at: at('03:00:04.112'),
  webhook_at: at('03:00:04.112'),
  landed_at: at('03:00:04.178'),
  changed_at: at('03:00:04.178'),
  polled_at: at('03:06:00.231'),
  confirmed_at: at('03:06:00.231'),
}

/** Adds examples to the members of all schemas. */
export function withExamples(document: object): object {
  return JSON.parse(JSON.stringify(document), (key, value) => {
    if (key !== 'properties') return value
    for (const [name, example] of Object.entries(exampleValues))
      if (name in value && value[name].type !== 'null' && !('const' in value[name]))
        value[name] = { ...value[name], example }
    return value
  })
}
