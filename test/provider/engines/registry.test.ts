import { expect, it } from 'vitest'
import { engineKinds } from '../../../src/provider/engines/engine-settings.ts'
import { createEngines, createRemoteEngine } from '../../../src/provider/engines/registry.ts'

const url = 'https://engines.example/v1'

it('creates every engine that a catalog can name', () => {
  for (const name of Object.keys(engineKinds)) {
    const remote = createRemoteEngine({ name, type: 'image', settings: { url, token_env: 'T' } }, 'a-token')
    expect(createEngines().get(name) ?? remote, name).toBeDefined()
  }
  expect(createRemoteEngine({ name: 'no-engine', type: 'image', settings: {} }, undefined)).toBeUndefined()
})
