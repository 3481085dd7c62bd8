type Waiting<Q, A> = { question: Q; resolve: (answer: A) => void; reject: (error: unknown) => void }

export type BatchOptions<Q, A> = {
  /** Answers the questions in their order, one answer each. */
  answerAll: (questions: readonly Q[]) => Promise<readonly A[]>
  /** Batches under way at the same time: with two, one is answered while Postgres works on the other. */
  parallel?: number
}

/** Questions of one batch: a statement that takes some milliseconds, and no caller waits long for the others. */
const maxBatch = 500

/**
 * Questions that come while a batch is under way are gathered and answered together
 * as the next one. No timer, so nothing waits that could go at once; and each
 * batch begins after its questions came, so no answer is older than its question.
 * What waits is bounded by the requests that the API works on at a time.
 */
export function createNaturalBatch<Q, A>({ answerAll, parallel = 2 }: BatchOptions<Q, A>): (question: Q) => Promise<A> {
  const waiting: Waiting<Q, A>[] = []
  let underWay = 0

  const runNext = async (): Promise<void> => {
    const batch = waiting.splice(0, maxBatch)
    underWay += 1
    try {
      const answers = await answerAll(batch.map(({ question }) => question))
      for (const [index, { resolve, reject }] of batch.entries()) {
        const answer = answers[index]
        if (answer === undefined) reject(new Error('a batch gave fewer answers than it had questions'))
        else resolve(answer)
      }
    } catch (error) {
      for (const { reject } of batch) reject(error)
    } finally {
      underWay -= 1
      pump()
    }
  }
  const rejectAll = (error: unknown) => {
    for (const { reject } of waiting.splice(0)) reject(error)
  }
  const pump = () => {
    while (waiting.length > 0 && underWay < parallel) runNext().catch(rejectAll)
  }
  return (question) =>
    new Promise<A>((resolve, reject) => {
      waiting.push({ question, resolve, reject })
      pump()
    })
}
