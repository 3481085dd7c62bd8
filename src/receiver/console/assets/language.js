// Imported before uPlot, which formats numbers in the browser's language when it is loaded. A browser in the C locale
// has an invalid language, and no chart would be drawn.
try {
  Intl.getCanonicalLocales(navigator.language)
} catch {
  Object.defineProperty(navigator, 'language', { value: 'en' })
}
