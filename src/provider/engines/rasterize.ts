import { renderAsync } from '@resvg/resvg-js'
import sharp, { type Sharp } from 'sharp'
import { captionFamily, fontFiles } from './artwork/font.ts'

/** Draws an SVG on another thread, so that the event loop stays free. Returns a sharp pipeline over the pixels. */
export async function rasterize(svg: string, signal: AbortSignal): Promise<Sharp> {
  signal.throwIfAborted()
  const image = await renderAsync(svg, {
    font: { loadSystemFonts: false, fontFiles, defaultFontFamily: captionFamily },
    logLevel: 'off',
  })
  signal.throwIfAborted()
  return sharp(image.pixels, { raw: { width: image.width, height: image.height, channels: 4, premultiplied: true } })
}

/** Encodes a drawn picture without its alpha channel, which is opaque everywhere. */
export async function encodePicture(picture: Sharp, format: 'png' | 'webp'): Promise<Buffer> {
  const opaque = picture.removeAlpha()
  return format === 'png'
    ? opaque.png({ compressionLevel: 6 }).toBuffer()
    : opaque.webp({ quality: 84, effort: 3 }).toBuffer()
}
