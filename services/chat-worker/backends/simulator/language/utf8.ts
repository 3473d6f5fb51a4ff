const REPLACEMENT = 0xfffd;

/**
 * Calls `visit` for each UTF-8 byte of a code point. Half a surrogate pair has
 * no bytes and becomes U+FFFD, as `TextEncoder` does it.
 */
export function eachUtf8Byte(
  codePoint: number,
  visit: (byte: number) => void,
): void {
  const code = codePoint >= 0xd800 && codePoint <= 0xdfff
    ? REPLACEMENT
    : codePoint;
  if (code < 0x80) return visit(code);
  const length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  const leadMark = length === 2 ? 0xc0 : length === 3 ? 0xe0 : 0xf0;
  visit(leadMark | (code >> (6 * (length - 1))));
  for (let rest = length - 2; rest >= 0; rest--) {
    visit(0x80 | ((code >> (6 * rest)) & 0x3f));
  }
}

/** How many bytes a character has whose first byte this is; 0 if none begins so. */
export function utf8Length(leadByte: number): number {
  if (leadByte < 0x80) return 1;
  if (leadByte >= 0xc2 && leadByte < 0xe0) return 2;
  if (leadByte >= 0xe0 && leadByte < 0xf0) return 3;
  if (leadByte >= 0xf0 && leadByte < 0xf5) return 4;
  return 0;
}
