import fs from 'node:fs/promises'
import path from 'node:path'
import { describe, expect, it } from 'vitest'
import { contentTypeOf, isOfKind } from '../../src/platform/media-type.ts'

const samples = path.resolve(import.meta.dirname, '../../src/provider/engines/samples')

describe('the type of a file', () => {
  it.each([
    ['audio.mp3', 'audio/mpeg'],
    ['image-0.webp', 'image/webp'],
    ['video.mp4', 'video/mp4'],
  ])('%s is %s by its content', async (name, contentType) => {
    expect(contentTypeOf(await fs.readFile(path.join(samples, name)))).toBe(contentType)
  })

  it.each([
    ['<svg xmlns="http://www.w3.org/2000/svg"/>'],
    ['<!doctype html>'],
    ['%PDF-1.7'],
    ['MZ\x90\x00'],
    [''],
    ['RIFF\x00\x00\x00\x00AVI '],
    ['\xff\xff\xff\xff'],
  ])('%j has no archived type', (head) => {
    expect(contentTypeOf(Buffer.from(head, 'latin1'))).toBeUndefined()
  })

  it('may be sound in a video container, but no picture', () => {
    expect([isOfKind('video/mp4', 'audio'), isOfKind('video/mp4', 'video'), isOfKind('video/mp4', 'image')]).toEqual([
      true,
      true,
      false,
    ])
  })
})
