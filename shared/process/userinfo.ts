/** A URL, or a text with some, without user and password: `redis://***@host`. */
export function hideUserinfo(text: string): string {
  // To the last "@": a password may hold one, or a comma.
  return text.replaceAll(/\/\/[^/\s]*@/g, "//***@");
}
