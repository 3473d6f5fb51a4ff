/** Makes text of a model server fit for a caller. */
export type Redact = (text: string) => string;

/** Characters of a message that are passed on. */
const MESSAGE_CHARS_MAX = 500;
/** Shorter values would be found in ordinary words. */
const SECRET_CHARS_MIN = 4;
const REDACTED = "[redacted]";

const PATTERNS: readonly RegExp[] = [
  /\b[a-z][a-z0-9+.-]*:\/\/[^\s"'<>]+/gi,
  /\bbearer\s+[^\s"',]+/gi,
  // Keys by the looks of the usual prefixes, masked ones such as `sk-ab***yz` included.
  /\b(?:sk|pk|rk|gsk|xai|hf|nvapi)[-_][A-Za-z0-9_*.-]{4,}/g,
  /\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b/g,
];
/** C0 and C1 controls: line ends would break logs and header-like contexts. */
const CONTROLS = /\p{Cc}+/gu;

/** What a server must not be able to send back to a caller. */
export interface RedactOptions {
  /** Credentials and header values. */
  secrets: readonly string[];
  baseUrl: URL;
}

/**
 * Makes a function that replaces the given secrets, the server's address, any
 * URL, network address or bearer credential by `[redacted]`, control characters
 * by blanks, and cuts the rest to 500 characters. Cutting comes last, so that no
 * part of a secret is left over.
 */
export function createRedact(options: RedactOptions): Redact {
  const { secrets, baseUrl } = options;
  const needles = [...secrets, baseUrl.href, baseUrl.host, baseUrl.hostname]
    .filter((needle) => needle.length >= SECRET_CHARS_MIN)
    .sort((a, b) => b.length - a.length);
  return (text) => {
    let clean = text.toWellFormed().replace(CONTROLS, " ");
    for (const needle of needles) clean = clean.replaceAll(needle, REDACTED);
    for (const pattern of PATTERNS) clean = clean.replace(pattern, REDACTED);
    return cut(clean.trim());
  };
}

function cut(text: string): string {
  if (text.length <= MESSAGE_CHARS_MAX) return text;
  return `${text.slice(0, MESSAGE_CHARS_MAX - 1).toWellFormed()}…`;
}
