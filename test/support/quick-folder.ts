import fs from 'node:fs/promises'
import os from 'node:os'

const inMemory = '/dev/shm'
const enough = 4 * 2 ** 30

/**
 * A folder for servers whose data may be lost: in memory if there is room, because each test database is a thousand
 * small files.
 */
export async function quickFolder(): Promise<string> {
  const room = await fs.statfs(inMemory).then(
    ({ bavail, bsize }) => bavail * bsize,
    () => 0,
  )
  return room >= enough && os.freemem() >= enough ? inMemory : os.tmpdir()
}
