import path from 'node:path'
import type { Program } from './config.ts'

const folder = (program: Program) => path.resolve(import.meta.dirname, '../../drizzle', program)

/** Each program's schema and the folder of its history. */
export const migrationsOf = {
  receiver: { schema: 'mediadock', folder: folder('receiver') },
  provider: { schema: 'provider', folder: folder('provider') },
} as const satisfies Record<Program, { schema: string; folder: string }>
