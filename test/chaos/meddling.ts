// Preloaded into a receiver. Messages over its channel set its clock wrong, or block its event loop.

const now = Date.now.bind(Date)
let shiftMs = 0

globalThis.Date = new Proxy(Date, {
  construct: (target, args, newTarget) =>
    Reflect.construct(target, args.length === 0 ? [now() + shiftMs] : args, newTarget),
  apply: () => new Date(now() + shiftMs).toString(),
  get: (target, name) => (name === 'now' ? () => now() + shiftMs : Reflect.get(target, name)),
})

process.on('message', (message: { shiftMs?: number; blockMs?: number }) => {
  shiftMs = message.shiftMs ?? shiftMs
  if (message.blockMs !== undefined) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, message.blockMs)
})
process.channel?.unref()
