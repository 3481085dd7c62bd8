export type Room = {
  /** False where there is none for it, or it is there already. */
  reserve: (id: string, bytes: number) => boolean
  /** Counts what is held already, whether or not there was room. */
  add: (id: string, bytes: number) => void
  release: (id: string) => void
  has: (id: string) => boolean
  left: () => { rows: number; bytes: number }
}

/** How much may be held at a time, in rows and in bytes. */
export function createRoom(max: { rows: number; bytes: number }): Room {
  const held = new Map<string, number>()
  let bytesHeld = 0
  const release = (id: string) => {
    bytesHeld -= held.get(id) ?? 0
    held.delete(id)
  }
  const add = (id: string, bytes: number) => {
    release(id)
    held.set(id, bytes)
    bytesHeld += bytes
  }
  return {
    reserve: (id, bytes) => {
      if (held.has(id) || held.size >= max.rows || bytesHeld + bytes > max.bytes) return false
      add(id, bytes)
      return true
    },
    add,
    release,
    has: (id) => held.has(id),
    left: () => ({ rows: max.rows - held.size, bytes: max.bytes - bytesHeld }),
  }
}
