import { expect, it } from 'vitest'
import { engineKinds } from '../../../src/provider/engines/engine-settings.ts'
import { createEngines, createRemoteEngine } from '../../../src/provider/engines/registry.ts'

const url = 'https://engines.example/v1'

it('creates every engine that a catalog can name', () => {
  const settings: Record<string, object> = { 'openai-images': { url, model: 'm' }, http: { url, token_env: 'T' } }
  for (const name of Object.keys(engineKinds)) {
    const remote = createRemoteEngine({ name, type: 'image', settings: { ...settings[name] } }, 'a-token')
    expect(createEngines().get(name) ?? remote, name).toBeDefined()
  }
  expect(createRemoteEngine({ name: 'no-engine', type: 'image', settings: {} }, undefined)).toBeUndefined()
})
