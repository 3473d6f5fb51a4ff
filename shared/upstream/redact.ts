/** Makes texts of model servers safe to show to callers. */
export type Redact = (text: string) => string;

const MESSAGE_CHARS_MAX = 500;
/** Shorter values would be found in ordinary words. */
const SECRET_CHARS_MIN = 4;
const REDACTED = "[redacted]";

const PATTERNS: readonly RegExp[] = [
  /\b[a-z][a-z0-9+.-]*:\/\/[^\s"'<>]+/gi,
  /\bbearer\s+[^\s"',]+/gi,
  // Keys with one of the usual prefixes, including masked ones such as `sk-ab***yz`.
  /\b(?:sk|pk|rk|gsk|xai|hf|nvapi)[-_][A-Za-z0-9_*.-]{4,}/g,
  /\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b/g,
  // File paths, and positions in source code.
  /(?<![\w\])}.<])~?\/(?!v\d+\/)(?:[\w.@+-]+\/)+[\w.@+-]+/g,
  /(?<![\w\])}.<])\/[\w@+-]+(?:\.\w+)+/g,
  /\b[A-Za-z]:\\[^\s"'<>]+/g,
  /\b[\w./-]+\.(?:py|cpp|cc|cu|hpp|h|go|rs|js|mjs|ts|java)(?::\d+)+\b/g,
];
/** Lines of stack traces of Python (with the code that it shows), JavaScript and Go. */
const STACK =
  /Traceback \(most recent call last\):|^[ \t]*File "[^"\n]*", line \d+.*(\n[ \t]{4,}.*)?|^[ \t]+at .*$|^goroutine \d+.*$|^\t.*\.go:\d+.*$/gm;
/** C0 and C1 controls: line ends would break logs and headers. */
const CONTROLS = /\p{Cc}+/gu;

/**
 * Secrets, addresses, file paths and credentials become `[redacted]`, the model's
 * name at the server becomes ours, stack traces go. Only then is the text clipped to
 * 500 characters, so that no partial secret remains.
 */
export function createRedact(
  { secrets, baseUrl, model }: {
    /** Credentials and header values. */
    secrets: readonly string[];
    baseUrl: URL;
    /** The model's name at the server, and its name for callers. */
    model?: { theirs: string; ours: string };
  },
): Redact {
  const isRenamed = model !== undefined && model.theirs !== model.ours &&
    model.theirs.length >= SECRET_CHARS_MIN;
  const name = isRenamed
    ? new RegExp(
      `[\\w.:/@-]*${model.theirs.replace(/[^\w]/g, "\\$&")}(?:[\\w:.-]*\\w)?`,
      "g",
    )
    : null;
  const needles = [...secrets, baseUrl.host, baseUrl.hostname]
    .filter((needle) => needle.length >= SECRET_CHARS_MIN)
    .sort((a, b) => b.length - a.length);
  return (text) => {
    let clean = text.toWellFormed().replaceAll("\r\n", "\n")
      .replace(STACK, "").replace(CONTROLS, " ");
    if (name !== null) clean = clean.replace(name, () => model?.ours ?? "");
    for (const needle of needles) clean = clean.replaceAll(needle, REDACTED);
    for (const pattern of PATTERNS) clean = clean.replace(pattern, REDACTED);
    clean = clean.trim();
    if (clean.length <= MESSAGE_CHARS_MAX) return clean;
    return `${clean.slice(0, MESSAGE_CHARS_MAX - 1).toWellFormed()}…`;
  };
}
