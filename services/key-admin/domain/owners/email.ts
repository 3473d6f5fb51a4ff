/** RFC 5321, 4.5.3.1.3: a path of 256 octets, less its angle brackets. */
export const EMAIL_CHARS_MAX = 254;
/** Deliberately loose: the address is proved by the link sent to it, not by its form. */
const FORM =
  /^[^\s@<>"'`,;:\\()[\]{}\p{Cc}\p{Cf}]{1,64}@[^\s@<>"'`,;:\\()[\]{}\p{Cc}\p{Cf}]{1,253}$/u;

/** The address as it is stored and compared, or null when it is none. */
export function parseEmail(text: string): string | null {
  const email = text.normalize("NFKC").trim().toLowerCase();
  return email.length <= EMAIL_CHARS_MAX && FORM.test(email) ? email : null;
}
