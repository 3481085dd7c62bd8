import path from 'node:path'

/*
 * The migrations that hold the present text of the SQL functions. One that replaces a function moves its name:
 *
 *   0000_baseline              count_arrivals, drop_arrival_day, make_arrival_day, note_joined, require_media,
 *                              rolled_back, still_kept
 *   0002_held_requests         held_requests
 *   0008_notify_guard          may_notify, sequence_changes
 *   0012_quick_metadata        readable_metadata
 *   0013_check_metadata_once   check_metadata
 *   0023_poll_leases           join_tracked
 */

/** The receiver's schema and the folder of its migrations. */
export const migrations = {
  schema: 'mediadock',
  folder: path.resolve(import.meta.dirname, '../../../drizzle/receiver'),
} as const
