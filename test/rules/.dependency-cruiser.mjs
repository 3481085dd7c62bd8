/**
 * Which room may import which. In each list a room imports what stands below
 * it, never what stands above or beside it; docs/architecture.md draws it.
 */

/** The programs and what they share, from the top. */
const house = [
  ['src/main.ts', 'src/cli.ts'],
  ['src/commands'],
  ['src/start'],
  ['src/laptop'],
  ['src/receiver/slices.ts'],
  ['src/config', 'src/client', 'src/receiver/archive', 'src/receiver/subscriptions'],
  ['src/receiver/console'],
  ['src/receiver', 'src/provider'],
  ['src/platform/pages'],
  ['src/platform', 'src/wire'],
]

/** Readers first, then the way of a delivery: landing and fetching, and intake, which meet in Postgres alone. */
const receiver = [
  ['console'],
  ['api'],
  ['program.ts'],
  ['background.ts'],
  ['assembly.ts'],
  ['on-call', 'traces'],
  ['slice.ts'],
  ['queries'],
  ['upkeep', 'metrics.ts'],
  ['gauges'],
  ['reconciling', 'submitting'],
  ['landing'],
  ['feeding', 'accounts'],
  ['fetching', 'intake', 'settings.ts'],
  ['sources'],
  ['domain'],
].map((floor) => floor.map((room) => `src/receiver/${room}`))

/** Optional capabilities: one folder each, with its tables, role, API and page. */
const slices = ['archive', 'subscriptions', 'slices.ts'].map((room) => `src/receiver/${room}`)

const provider = [
  ['program.ts'],
  ['console'],
  ['api', 'operating'],
  ['submit'],
  ['queue', 'settings.ts'],
  ['references'],
  ['catalog'],
  ['engines'],
  ['webhooks'],
  ['accounts'],
  ['domain', 'messages'],
].map((floor) => floor.map((room) => `src/provider/${room}`))

const console = [
  ['router.ts'],
  ['slice-pages.ts'],
  ['now', 'keys-page.ts', 'issues-page.ts', 'search-page.ts'],
  ['parked', 'requests'],
  ['deliveries', 'reconciler-page.ts', 'audit-page.ts'],
  ['parts'],
].map((floor) => floor.map((room) => `src/receiver/console/${room}`))

const inside = (rooms) => `^(${rooms.map((room) => room.replaceAll('.', String.raw`\.`)).join('|')})(/|$)`

/** One rule per folder: it imports itself and lower levels. A folder inside it with another level has another rule. */
function order(floors, name) {
  const within = (room) => [...floors.flat(), ...slices].filter((other) => other.startsWith(`${room}/`))
  return floors.flatMap((floor, at) =>
    floor.map((room) => ({
      name: `${name}: ${room} imports only what stands below it`,
      severity: 'error',
      from: { path: inside([room]), ...(within(room).length > 0 && { pathNot: inside(within(room)) }) },
      to: {
        path: inside(
          floors
            .slice(0, at + 1)
            .flat()
            .filter((other) => other !== room),
        ),
      },
    })),
  )
}

const everyRoom = (floors, folder) => ({
  name: `${folder}: each file and folder has a floor`,
  severity: 'error',
  from: { path: `^${folder}/`, pathNot: inside(floors.flat()) },
  to: {},
})

export default {
  forbidden: [
    { name: 'no circles', severity: 'error', from: {}, to: { circular: true } },
    {
      name: 'src imports nothing of test and bench',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: '^(test|bench)/' },
    },
    {
      name: 'what runs is no development dependency',
      severity: 'error',
      from: { path: '^src/' },
      to: { dependencyTypes: ['npm-dev'] },
    },
    {
      name: 'drizzle-orm is loaded by drizzle.ts alone, its types apart: its ES modules cost each process 0.4 s',
      severity: 'error',
      from: { path: '^src/' },
      to: { path: 'drizzle-orm', dependencyTypesNot: ['type-only', 'type-import'] },
    },
    ...order(house, 'house'),
    ...order(receiver, 'receiver'),
    ...order(provider, 'provider'),
    ...order(console, 'console'),
    everyRoom(house, 'src'),
    everyRoom(receiver.concat([slices]), 'src/receiver'),
    everyRoom(provider, 'src/provider'),
    everyRoom(console.concat([['src/receiver/console/assets']]), 'src/receiver/console'),
    {
      name: 'the console shows the receiver alone',
      severity: 'error',
      from: { path: '^src/receiver/console/' },
      to: { path: '^src/provider/' },
    },
    {
      name: 'intake and landing meet in Postgres alone',
      severity: 'error',
      from: { path: '^src/receiver/(landing|fetching|reconciling)/' },
      to: { path: '^src/receiver/intake/' },
    },
    {
      name: 'the core knows no source by name: settings alone read which there are',
      severity: 'error',
      from: { path: '^src/', pathNot: [inside(['src/receiver/sources', 'src/receiver/settings.ts']), '^src/start/'] },
      to: { path: '^src/receiver/sources/' },
    },
  ],
  options: { doNotFollow: { path: 'node_modules' }, parser: 'swc' },
}
