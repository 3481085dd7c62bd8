/** Frames per second of the sounds that the engines make. */
export const sampleRate = 44_100

/** Stereo sound; samples from -1 to 1. */
export type Sound = { sampleRate: number; left: Float32Array; right: Float32Array }

const headerBytes = 44
const bytesPerFrame = 4

/** RIFF WAVE with 16-bit PCM. */
export function encodeWav({ sampleRate, left, right }: Sound): Buffer {
  const pcm = Buffer.alloc(left.length * bytesPerFrame)
  for (let frame = 0; frame < left.length; frame++) {
    pcm.writeInt16LE(toInt16(left[frame] ?? 0), frame * bytesPerFrame)
    pcm.writeInt16LE(toInt16(right[frame] ?? 0), frame * bytesPerFrame + 2)
  }
  return wavOf(pcm, sampleRate)
}

/** RIFF WAVE of samples that are 16-bit PCM already, in stereo. */
export function wavOf(pcm: Buffer, sampleRate: number): Buffer {
  const dataBytes = pcm.length
  const wav = Buffer.alloc(headerBytes + dataBytes)
  wav.write('RIFF', 0, 'latin1')
  wav.writeUInt32LE(headerBytes - 8 + dataBytes, 4)
  wav.write('WAVEfmt ', 8, 'latin1')
  wav.writeUInt32LE(16, 16)
  wav.writeUInt16LE(1, 20)
  wav.writeUInt16LE(2, 22)
  wav.writeUInt32LE(sampleRate, 24)
  wav.writeUInt32LE(sampleRate * bytesPerFrame, 28)
  wav.writeUInt16LE(bytesPerFrame, 32)
  wav.writeUInt16LE(16, 34)
  wav.write('data', 36, 'latin1')
  wav.writeUInt32LE(dataBytes, 40)
  pcm.copy(wav, headerBytes)
  return wav
}

function toInt16(sample: number): number {
  return Math.round(Math.max(-1, Math.min(1, sample)) * 32_767)
}
