import { startRelay } from './relay.ts'

/** A relay in front of Postgres that can stop passing on its answers, as a frozen server does. */
export async function startPostgresProxy(url: string) {
  let letThrough = Infinity
  let isPooler = false
  let metStandby = false
  const relay = await startRelay(url, ({ client }) => (chunk) => {
    if (isPooler) renameProcess(chunk)
    if (metStandby) tellOfStandby(chunk)
    const passed = chunk.subarray(0, letThrough)
    letThrough -= passed.length
    if (passed.length > 0) client.write(passed)
  })
  return {
    url: relay.url,
    accepted: relay.accepted,
    /** Ends every connection; new ones are taken. */
    cut: relay.cut,
    /** From now on only so many more bytes of answers come through. */
    swallowAfter: (bytes: number) => {
      letThrough = bytes
    },
    /** Tells clients of another process than the one that serves them, as poolers do. */
    actAsPooler: () => {
      isPooler = true
    },
    /** Keeps reporting a standby, like poolers that first connected to one. */
    rememberStandby: () => {
      metStandby = true
    },
    passOn: () => {
      letThrough = Infinity
    },
  }
}

/** BackendKeyData: its type, its length, then the process and a key. */
const backendKeyData = Buffer.from([0x4b, 0, 0, 0, 12])

function renameProcess(chunk: Buffer): void {
  const at = chunk.indexOf(backendKeyData)
  if (at !== -1) chunk.writeInt32BE(chunk.readInt32BE(at + backendKeyData.length) + 1, at + backendKeyData.length)
}

function tellOfStandby(chunk: Buffer): void {
  const name = 'in_hot_standby\0'
  const at = chunk.indexOf(`${name}off\0`)
  if (at !== -1) chunk.write('on\0\0', at + name.length, 'latin1')
}
