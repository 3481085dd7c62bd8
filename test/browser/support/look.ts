/** How the console is looked at: in these schemes, and on a phone too. */
export const phone = { width: 400, height: 800 } as const
export const schemes = ['light', 'dark'] as const
