import type { Router } from 'express'
import type { Operation } from '../api/operation.ts'
import type { ReceiverDeps } from '../program.ts'
import type { Slice } from '../slice.ts'
import type { ConsoleDeps } from './parts/shell.ts'

/** The calls, pages and routes that a slice adds to the internal listener. */
export type SlicePages = {
  /** Calls of the JSON API. */
  operations?: (deps: ReceiverDeps) => Operation[]
  /** Pages of the console. */
  pages?: (console: ConsoleDeps) => Router
  /** Other routes of the slice. */
  routes?: (deps: ReceiverDeps) => Router
}

/** A slice with its API and pages, which are loaded only by a process that serves them. */
export type SliceWithPages = Slice & { internal: () => Promise<SlicePages> }
