// uPlot formats numbers in the browser's language when it is loaded, and a browser
// in the C locale has one that is none: no chart would be drawn. Imported before it.
try {
  Intl.getCanonicalLocales(navigator.language)
} catch {
  Object.defineProperty(navigator, 'language', { value: 'en' })
}
