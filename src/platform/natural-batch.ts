type Waiting<Q, A> = { question: Q; resolve: (answer: A) => void; reject: (error: unknown) => void }

export type BatchOptions<Q, A> = {
  /** Answers the questions in order, one answer each. */
  answerAll: (questions: readonly Q[]) => Promise<readonly A[]>
  /** Number of concurrent batches. With two, one is prepared while Postgres works on the other. */
  parallel?: number
}

/**
 * Gathers questions that arrive during a batch and answers them together in the next one. There is no timer, so no
 * question waits needlessly. A batch starts after its questions arrived, so no answer is older than its question. The
 * API's limit of concurrent requests bounds the queue.
 */
export function createNaturalBatch<Q, A>({ answerAll, parallel = 2 }: BatchOptions<Q, A>): (question: Q) => Promise<A> {
  const waiting: Waiting<Q, A>[] = []
  let underWay = 0

  const answerBatch = async (batch: readonly Waiting<Q, A>[]): Promise<void> => {
    const answers = await answerAll(batch.map(({ question }) => question))
    for (const [index, { resolve, reject }] of batch.entries()) {
      const answer = answers[index]
      if (answer === undefined) reject(new Error('a batch returned fewer answers than questions'))
      else resolve(answer)
    }
  }
  const pump = () => {
    while (waiting.length > 0 && underWay < parallel) {
      // Bounds a batch to a few milliseconds, so that no caller waits long for the others.
      const batch = waiting.splice(0, 500)
      underWay += 1
      answerBatch(batch)
        .catch((error: unknown) => batch.forEach(({ reject }) => reject(error)))
        .finally(() => {
          underWay -= 1
          pump()
        })
    }
  }
  return (question) =>
    new Promise<A>((resolve, reject) => {
      waiting.push({ question, resolve, reject })
      pump()
    })
}
