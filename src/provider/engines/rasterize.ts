import { createRequire } from 'node:module'
import path from 'node:path'
import { renderAsync } from '@resvg/resvg-js'
import sharp, { type Sharp } from 'sharp'

const fonts = path.join(path.dirname(createRequire(import.meta.url).resolve('dejavu-fonts-ttf/package.json')), 'ttf')
/** The only fonts, so that the machine's own never change a picture. The second has scripts that the first lacks. */
const fontFiles = ['DejaVuSansMono.ttf', 'DejaVuSans.ttf'].map((name) => path.join(fonts, name))

/** Draws an SVG on another thread, so that the event loop stays free. Returns a sharp pipeline over the pixels. */
export async function rasterize(svg: string, signal: AbortSignal): Promise<Sharp> {
  signal.throwIfAborted()
  const image = await renderAsync(svg, {
    font: { loadSystemFonts: false, fontFiles, defaultFontFamily: 'DejaVu Sans Mono' },
    logLevel: 'off',
  })
  signal.throwIfAborted()
  return sharp(image.pixels, { raw: { width: image.width, height: image.height, channels: 4, premultiplied: true } })
}

/** Draws an SVG as a PNG that is read once, a moment later, so compression is not worth the time. */
export async function pngOf(svg: string, signal: AbortSignal): Promise<Buffer> {
  return (await rasterize(svg, signal)).png({ compressionLevel: 1 }).toBuffer()
}

/** Encodes a drawn picture without its alpha channel, which is opaque everywhere. */
export async function encodePicture(picture: Sharp, format: 'png' | 'webp'): Promise<Buffer> {
  const opaque = picture.removeAlpha()
  return format === 'png'
    ? opaque.png({ compressionLevel: 6 }).toBuffer()
    : opaque.webp({ quality: 84, effort: 3 }).toBuffer()
}
