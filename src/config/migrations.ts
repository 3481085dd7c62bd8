import { migrations as provider } from '../provider/domain/migrations.ts'
import { migrations as receiver } from '../receiver/domain/migrations.ts'
import type { Program } from './config.ts'

export const migrationsOf = { receiver, provider } as const satisfies Record<
  Program,
  { schema: string; folder: string }
>
