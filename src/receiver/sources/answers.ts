import { maxAnswerBytes, type ApiAnswer, type FetchOutcome } from '../domain/source.ts'

/** The outcome of an answer that is no result, by its status alone; undefined for 200 and 202. */
export function answeredOtherwise({ status, body, retryAfterSeconds }: ApiAnswer): FetchOutcome | undefined {
  switch (status) {
    case 200:
    case 202:
      return body === undefined
        ? { kind: 'invalid', detail: `the answer is larger than ${maxAnswerBytes} bytes` }
        : undefined
    case 401:
    case 403:
      return { kind: 'unauthorized' }
    case 404:
      return { kind: 'not_found' }
    case 429:
      return { kind: 'rate_limited', retryAfterSeconds }
    default:
      return status >= 500
        ? { kind: 'unreachable', detail: `answered ${status}` }
        : { kind: 'invalid', detail: `answered ${status}, which is not part of the API` }
  }
}
