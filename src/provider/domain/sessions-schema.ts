import { text } from '../../platform/postgres/drizzle.ts'
import { instant, provider } from './schema.ts'

/** Who is signed in to the developer console, by the HMAC of their cookie under its token: see sessions.ts. */
export const sessions = provider.table('sessions', {
  id: text('id').primaryKey(),
  name: text('name').notNull(),
  expiresAt: instant('expires_at').notNull(),
})
