const CHARS_MAX = 254;
/** Deliberately loose: the address is proved by the link sent to it, not by its form. */
const FORM =
  /^[^\s@<>"'`,;:\\()[\]{}\p{Cc}\p{Cf}]{1,64}@[^\s@<>"'`,;:\\()[\]{}\p{Cc}\p{Cf}]{1,253}$/u;

/** The address as it is stored and compared, or null when it is none. */
export function parseEmail(text: string): string | null {
  const email = text.normalize("NFKC").trim().toLowerCase();
  return email.length <= CHARS_MAX && FORM.test(email) ? email : null;
}
