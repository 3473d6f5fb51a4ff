/** The one rule for e-mail addresses: typed, invited, or stated by a provider. */

/** RFC 5321, 4.5.3.1.3: a path of 256 octets, less its angle brackets. */
export const EMAIL_CHARS_MAX = 254;

/**
 * Deliberately loose, since a link that is sent to an address verifies it. But nothing
 * is an address that a list, a log or an eye could take for another one: no controls,
 * no invisible characters, no marks that change the direction of text.
 */
const EMAIL = new RegExp(
  String.raw`^PART{1,64}@PART{1,253}$`.replaceAll(
    "PART",
    String.raw`[^\s@<>"'\x60,;:\\()[\]{}\p{C}\p{Default_Ignorable_Code_Point}]`,
  ),
  "u",
);

/**
 * The address in the form in which it is stored and compared (NFKC, lower case, without
 * spaces around it), or null if the text is not an address.
 */
export function parseEmail(text: string): string | null {
  const email = text.normalize("NFKC").trim().toLowerCase();
  return email.length <= EMAIL_CHARS_MAX && EMAIL.test(email) ? email : null;
}

/**
 * The address that a program states, or null if it is none. Unlike
 * {@link parseEmail}, this corrects nothing but case: a mailbox in letters that only
 * look like those of another is not that mailbox.
 */
export function parseStatedEmail(text: string): string | null {
  const email = parseEmail(text);
  return email === text.toLowerCase() ? email : null;
}
