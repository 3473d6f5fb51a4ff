/** One of our keys in full, or as much of one as is of use to somebody. */
const KEY = /\bsk-[A-Za-z0-9]{8,}/;

/**
 * Fails when there is a key in text that may hold none (ASVS 16.2.5): a log, or an
 * answer other than the one that made the key. Fixtures call it with all that was
 * written while they ran, so that every test that uses them looks.
 */
export function assertNoKeys(text: string, where: string): void {
  const found = KEY.exec(text);
  if (found === null) return;
  const around = text.slice(Math.max(0, found.index - 200), found.index);
  throw new Error(`A key in ${where}, after: ${around}`);
}
