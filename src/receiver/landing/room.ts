import { createShares, type Amount } from '../../platform/fair-share.ts'

export type Room = {
  /** False where there is none for it, or it is there already. */
  reserve: (id: string, of: Sized) => boolean
  /** Counts what is held already, whether or not there was room. */
  add: (id: string, of: Sized) => void
  release: (id: string) => void
  has: (id: string) => boolean
  left: () => Amount
}

export type Sized = { keyName: string; bytes: number }

/** How much may be held at a time, in rows and in bytes, and how much of one key. */
export function createRoom(max: Amount): Room {
  const held = new Map<string, Sized>()
  const shares = createShares(max)
  const release = (id: string) => {
    const one = held.get(id)
    if (one && held.delete(id)) shares.remove(one.keyName, one.bytes)
  }
  const add = (id: string, one: Sized) => {
    release(id)
    held.set(id, one)
    shares.add(one.keyName, one.bytes)
  }
  return {
    reserve: (id, one) => {
      if (held.has(id) || !shares.isOpen(one.keyName)) return false
      add(id, one)
      return true
    },
    add,
    release,
    has: (id) => held.has(id),
    left: () => {
      const { rows, bytes } = shares.held()
      return { rows: max.rows - rows, bytes: max.bytes - bytes }
    },
  }
}
