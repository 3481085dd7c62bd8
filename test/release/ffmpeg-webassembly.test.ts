import { describeDecoding, webAssembly } from '../platform/support/decoding.ts'

describeDecoding('the WebAssembly build', webAssembly)
