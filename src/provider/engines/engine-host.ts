import { type ChildProcess, fork } from 'node:child_process'
import path from 'node:path'
import type { Logger } from '../../platform/logger.ts'
import type { Output } from '../../wire/schemas.ts'
import type { EngineChoice, RemoteJob } from '../domain/engine-choice.ts'
import { readEngineToken } from './engine-settings.ts'
import {
  EngineError,
  type EngineJob,
  type EngineReport,
  isDiscarded,
  type Order,
  type Report,
  reportSchema,
} from './engine.ts'

/** The script of the engine process, beside this file and with its extension. */
const script = path.join(import.meta.dirname, `engine-process${path.extname(import.meta.filename)}`)

/**
 * Variables that Node and calls to services need. The process decodes foreign pictures, so it gets no others, such as
 * our secrets.
 */
const passedOn =
  /^(?:PATH|HOME|TMPDIR|TEMP|TMP|TZ|SystemRoot|NODE_\w+|SSL_CERT_\w+|\w+_PROXY|LD_LIBRARY_PATH|MALLOC_\w+)$/i

export type EngineHost = ReturnType<typeof createEngineHost>

type Run = {
  by: ChildProcess
  job: EngineJob
  report: Report
  resolve: (output: Output) => void
  reject: (error: Error) => void
}

/** Runs engines in a separate process, which is started on first use and again after it dies. */
export function createEngineHost({ ffmpegPath, logger }: { ffmpegPath?: string | undefined; logger: Logger }) {
  const runs = new Map<number, Run>()
  let child: ChildProcess | undefined
  let lastRun = 0

  const keep = ({ by, job }: Run, { run, remoteJob }: { run: number; remoteJob: RemoteJob }) => {
    const answer = (isKept: boolean) => sendOrder(by, { kind: 'remote_job_kept', run, isKept })
    Promise.resolve(job.keepRemoteJob?.(remoteJob)).then(
      () => answer(true),
      (error: unknown) => {
        logger.warn({ err: error, request_id: job.requestId }, 'the remote job was not stored')
        answer(false)
      },
    )
  }
  const onMessage = (message: unknown) => {
    const engineReport = reportSchema.parse(message)
    const run = runs.get(engineReport.run)
    if (run === undefined) return
    switch (engineReport.kind) {
      case 'progress':
        run
          .report(engineReport.percent, engineReport.line)
          .catch((error: unknown) => logger.warn({ err: error }, 'the progress of a generation was not written'))
        return
      case 'remote_job':
        return keep(run, engineReport)
      case 'done':
        return run.resolve(engineReport.output)
      case 'failed':
        return run.reject(engineErrorOf(engineReport))
      default:
        engineReport satisfies never
    }
  }
  const start = (): ChildProcess => {
    const started = fork(script, ffmpegPath === undefined ? [] : [ffmpegPath], {
      // Drawing takes 20 MB of heap, and the largest answer of an image service briefly takes 200 MB. Pixels are
      // outside the heap and have separate limits (reference-picture.ts).
      execArgv: ['--max-old-space-size=512'],
      env: Object.fromEntries(Object.entries(process.env).filter(([name]) => passedOn.test(name))),
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      serialization: 'json',
      // A separate session, so that the process can lower its priority (engine-process.ts).
      detached: true,
      windowsHide: true,
    })
    started.on('message', onMessage)
    let lost = 0
    const end = (how: string) => {
      if (child === started) child = undefined
      for (const [id, run] of runs) {
        if (run.by !== started) continue
        runs.delete(id)
        lost += 1
        run.reject(new Error(`the engine process ended (${how})`))
      }
    }
    started.on('error', (error) => {
      logger.error({ err: error }, 'the engine process could not be started, reached or stopped: see err')
      // A process that could not be started emits no exit.
      if (started.pid === undefined) end(error.message)
    })
    started.once('disconnect', () => {
      end('its channel is closed')
      started.kill('SIGKILL')
    })
    started.once('exit', (code, signal) => {
      end(String(signal ?? code))
      if (lost > 0)
        logger.error({ code, signal, generations: lost }, 'the engine process died while generations were running')
    })
    return started
  }

  /** Runs a job on an engine. Rejects with an EngineError if the client may know the reason. */
  const run = async (engine: EngineChoice, job: EngineJob, report: Report, signal: AbortSignal): Promise<Output> => {
    signal.throwIfAborted()
    const token = readEngineToken(engine)
    const to = child?.connected ? child : (child = start())
    const id = ++lastRun
    const { promise, resolve, reject } = Promise.withResolvers<Output>()
    const abort = () => {
      sendOrder(to, { kind: 'abort', run: id, discard: isDiscarded(signal.reason) })
      // Engines stop soon afterwards. The caller does not wait for them.
      reject(signal.reason instanceof Error ? signal.reason : new Error('aborted'))
    }
    runs.set(id, { by: to, job, report, resolve, reject })
    signal.addEventListener('abort', abort, { once: true })
    const { keepRemoteJob: _, ...sent } = job
    sendOrder(to, { kind: 'run', run: id, engine, token, job: sent })
    try {
      return await promise
    } finally {
      signal.removeEventListener('abort', abort)
      runs.delete(id)
    }
  }
  return { run, pid: () => child?.pid, close: () => void child?.kill('SIGKILL') }
}

function engineErrorOf({ forClient, detail }: Extract<EngineReport, { kind: 'failed' }>): Error {
  const cause = new Error(detail)
  return forClient
    ? new EngineError(forClient.message, { cause, transient: forClient.transient })
    : new Error('an engine broke', { cause })
}

function sendOrder(child: ChildProcess, order: Order): void {
  if (child.connected) child.send(order)
}
