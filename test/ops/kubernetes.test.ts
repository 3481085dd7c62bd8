import fs from 'node:fs/promises'
import os from 'node:os'
import path from 'node:path'
import ipaddr from 'ipaddr.js'
import { expect, it, onTestFinished } from 'vitest'
import { parse, parseAllDocuments } from 'yaml'
import { z } from 'zod'
import { readConfig } from '../../src/config/config.ts'

const folder = path.resolve(import.meta.dirname, '../../deploy/kubernetes')
const objectSchema = z.looseObject({
  apiVersion: z.string(),
  kind: z.string(),
  metadata: z.looseObject({ name: z.string() }),
})
type KubernetesObject = z.infer<typeof objectSchema>

const kustomization = z
  .looseObject({ resources: z.array(z.string()) })
  .parse(parse(await fs.readFile(path.join(folder, 'kustomization.yaml'), 'utf8')))
const besides = ['migrate.yaml', 'prometheus-operator/service-monitor.yaml']
const objects = (
  await Promise.all(
    [...kustomization.resources, ...besides].map(async (file) =>
      parseAllDocuments(await fs.readFile(path.join(folder, file), 'utf8')).map((document) =>
        objectSchema.parse(document.toJS()),
      ),
    ),
  )
).flat()

function find<T extends z.ZodType>(kind: string, schema: T, name = 'mediadock'): z.infer<T> {
  const [found] = objects.filter((object) => object.kind === kind && object.metadata.name === name)
  return schema.parse(found)
}

const settings = find('ConfigMap', z.looseObject({ data: z.record(z.string(), z.string()) })).data
const containerSchema = z.looseObject({
  args: z.array(z.string()),
  ports: z.array(z.object({ name: z.string(), containerPort: z.int() })).optional(),
})
const podSchema = z.looseObject({
  metadata: z.looseObject({ labels: z.record(z.string(), z.string()) }),
  spec: z.looseObject({
    terminationGracePeriodSeconds: z.int().optional(),
    enableServiceLinks: z.boolean().optional(),
    containers: z.tuple([containerSchema]),
    volumes: z.array(z.looseObject({})),
  }),
})
const { template } = find('Deployment', z.looseObject({ spec: z.looseObject({ template: podSchema }) })).spec
const ports = template.spec.containers[0].ports ?? []

const ruleSchema = z.object({
  to: z.array(
    z.looseObject({ ipBlock: z.object({ cidr: z.string(), except: z.array(z.string()).default([]) }).optional() }),
  ),
  ports: z.array(z.object({ port: z.int(), protocol: z.string().optional() })),
})

/** The model of the kind, with the schema of its API. */
async function modelOf({
  apiVersion,
  kind,
}: KubernetesObject): Promise<new (given: object) => { validate: () => void }> {
  const from = apiVersion.startsWith('monitoring.') ? '@kubernetes-models/prometheus-operator' : 'kubernetes-models'
  return (await import(`${from}/${apiVersion}/${kind}`))[kind]
}

it.each(objects.map((object) => [`${object.kind} ${object.metadata.name}`, object] as const))(
  '%s matches its API schema',
  async (_, object) => {
    const Model = await modelOf(object)
    expect(() => new Model(object).validate()).not.toThrow()
    expect(() =>
      new Model({
        ...object,
        spec: { selector: 7, rules: 7, ingress: 7, minReplicas: 'x' },
        data: 7,
        automountServiceAccountToken: 7,
      }).validate(),
    ).toThrow()
  },
)

it("a receiver starts with the ConfigMap, and the pod's grace period is longer than a stop", async () => {
  const secrets = await fs.mkdtemp(path.join(os.tmpdir(), 'mediadock-kubernetes-'))
  onTestFinished(() => fs.rm(secrets, { recursive: true, force: true }))
  const contents: Record<string, string> = {
    'database-url': 'postgres://mediadock:secret@db/media',
    'internal-token': 'x'.repeat(32),
    'generation-keys.json': '[{"name":"live","api_key":"service_live_x","signing_secret":"whsec_of_this_test"}]',
  }
  for (const [name, text] of Object.entries(contents)) await fs.writeFile(path.join(secrets, name), text)
  const env = Object.fromEntries(
    Object.entries(settings).map(([name, value]) => [name, value.replace(/^\/run\/secrets\/mediadock(?=\/)/, secrets)]),
  )
  const { receiver } = readConfig(env, ['receiver'], { databaseUrl: undefined, keys: undefined, secretKey: undefined })
  expect(receiver).toMatchObject({ migrateOnStart: false, internalHost: '0.0.0.0', drainSeconds: 15 })
  expect(template.spec.terminationGracePeriodSeconds).toBeGreaterThan(receiver?.shutdownGraceSeconds ?? Number.NaN)
  expect(ports).toEqual([
    { name: 'webhooks', containerPort: receiver?.port },
    { name: 'internal', containerPort: receiver?.internalPort },
  ])
})

it('services, policies and probes refer to existing pods and ports', () => {
  const selected = objects.flatMap(({ kind, spec }) => {
    const { selector, podSelector } = z
      .looseObject({ selector: z.unknown().optional(), podSelector: z.unknown().optional() })
      .parse(spec ?? {})
    return kind === 'ServiceMonitor' ? [] : [selector, podSelector].filter((one) => one !== undefined)
  })
  expect(selected.length).toBeGreaterThan(4)
  for (const one of selected) {
    const labels = z.looseObject({ matchLabels: z.record(z.string(), z.string()) }).safeParse(one)
    expect(template.metadata.labels).toMatchObject(
      labels.success ? labels.data.matchLabels : z.record(z.string(), z.string()).parse(one),
    )
  }
  const named = [...JSON.stringify(objects).matchAll(/"(?:port|targetPort)":"(\w+)"/g)].map(([, name]) => name)
  expect(named.length).toBeGreaterThan(6)
  expect(ports.map(({ name }) => name)).toEqual(expect.arrayContaining([...new Set(named)]))
})

it('the network policy lets receivers reach Postgres and outside https, but no other pods and no cloud metadata service', () => {
  const rules = find(
    'NetworkPolicy',
    z.looseObject({ spec: z.looseObject({ policyTypes: z.array(z.string()), egress: z.array(ruleSchema) }) }),
  ).spec
  expect(rules.policyTypes).toEqual(['Ingress', 'Egress'])
  const isIn = (address: string, cidr: string) => {
    const [parsed, range] = [ipaddr.parse(address), ipaddr.parseCIDR(cidr)]
    return parsed.kind() === range[0].kind() && parsed.match(range)
  }
  const mayReach = (address: string, port: number) =>
    rules.egress.some(
      ({ to, ports: allowed }) =>
        allowed.some((one) => one.port === port) &&
        to.some(
          ({ ipBlock }) =>
            ipBlock && isIn(address, ipBlock.cidr) && !ipBlock.except.some((except) => isIn(address, except)),
        ),
    )
  expect([mayReach('10.2.3.4', 5432), mayReach('203.0.113.9', 443), mayReach('2a00::1', 443)]).toEqual([
    true,
    true,
    true,
  ])
  const others: [string, number][] = [
    ['10.2.3.4', 443],
    ['169.254.169.254', 443],
    ['169.254.169.254', 80],
    ['203.0.113.9', 80],
    ['203.0.113.9', 5432],
    ['fd00:ec2::254', 443],
  ]
  expect(others.filter(([address, port]) => mayReach(address, port))).toEqual([])
  expect(template.spec.enableServiceLinks).toBe(false)
})

it('Prometheus scrapes the internal service under the job name that the alerts use', () => {
  const monitor = find(
    'ServiceMonitor',
    z.looseObject({
      spec: z.looseObject({
        selector: z.looseObject({ matchLabels: z.record(z.string(), z.string()) }),
        jobLabel: z.string(),
      }),
    }),
  )
  const service = find(
    'Service',
    z.looseObject({ metadata: z.looseObject({ labels: z.record(z.string(), z.string()) }) }),
    'mediadock-internal',
  )
  const { labels } = service.metadata
  expect(labels).toMatchObject(monitor.spec.selector.matchLabels)
  expect(labels[monitor.spec.jobLabel]).toBe('mediadock')
})
