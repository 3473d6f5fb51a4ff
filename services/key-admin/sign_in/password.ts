import { hash, verify } from "@node-rs/argon2";

/**
 * Passwords as argon2id (ASVS 11.4.2, OWASP's first choice): 19 MiB, 2 passes,
 * 1 lane, about 25 ms. The parameters stand in the stored string.
 */
const PARAMETERS = {
  /** argon2id in the library's numbering, whose own enumeration exists for the compiler only. */
  algorithm: 2,
  memoryCost: 19_456,
  timeCost: 2,
  parallelism: 1,
};
const CURRENT = "$argon2id$v=19$m=19456,t=2,p=1$";

/** Bounds of a password in characters. Longer ones are refused before any work (ASVS 6.2.1, 6.2.9). */
export const PASSWORD_CHARS_MIN = 12;
export const PASSWORD_CHARS_MAX = 128;

/** Hashes and checks passwords. An interface, so that tests need not wait for real ones. */
export interface PasswordHasher {
  hash(password: string): Promise<string>;
  /** `stored` null stands for an account that is not there: the same work is done for it (ASVS 6.3.8). */
  verify(stored: string | null, password: string): Promise<boolean>;
  /** Whether the stored string has other parameters than today's. */
  isOutdated(stored: string): boolean;
}

/** Hashing takes a core each: more at once would starve everything else of a small machine. */
const AT_ONCE_MAX = 4;

/** The hasher of the service. Makes one hash at the start, for accounts that are not there. */
export async function createPasswordHasher(): Promise<PasswordHasher> {
  const decoy = await hash("nobody has this password", PARAMETERS);
  const limit = createLimit(AT_ONCE_MAX);
  return {
    hash: (password) => limit(() => hash(normal(password), PARAMETERS)),
    verify: (stored, password) =>
      limit(async () => {
        const isRight = await verify(stored ?? decoy, normal(password));
        return stored !== null && isRight;
      }),
    isOutdated: (stored) => !stored.startsWith(CURRENT),
  };
}

/** The same password typed on two systems may arrive in two Unicode forms. */
const normal = (password: string): string => password.normalize("NFKC");

/** What is wrong with a new password, or null. No rules of composition, only length and guessability (ASVS 6.2). */
export function passwordProblem(
  password: string,
  context: { email: string },
): string | null {
  const length = [...password].length;
  if (length < PASSWORD_CHARS_MIN) {
    return `At least ${PASSWORD_CHARS_MIN} characters, please. A few words in a row are easy to remember.`;
  }
  if (length > PASSWORD_CHARS_MAX) {
    return `At most ${PASSWORD_CHARS_MAX} characters`;
  }
  if (isGuessable(password, context.email)) {
    return "This password is among the first that are guessed. Choose another one.";
  }
  return null;
}

/**
 * What people choose when they must choose twelve characters is a common word
 * with decoration, a walk over the keyboard or a repetition. So the password is
 * stripped of digits, signs and look-alikes, and refused when hardly anything
 * but common words is left.
 */
function isGuessable(password: string, email: string): boolean {
  const lower = password.toLowerCase();
  if (isRepetition(lower) || isWalk(lower)) return true;
  const words = [...COMMON, ...contextWords(email)]
    .toSorted((a, b) => b.length - a.length);
  return [lower, plain(lower)].some((text) => {
    let rest = text;
    for (const word of words) rest = rest.replaceAll(word, "");
    const hasCommonWord = rest !== text;
    return hasCommonWord && rest.replace(/[^\p{L}]/gu, "").length < 4;
  });
}

function plain(text: string): string {
  const lookAlikes: Readonly<Record<string, string>> = {
    "0": "o",
    "1": "i",
    "3": "e",
    "4": "a",
    "5": "s",
    "7": "t",
    "@": "a",
    "$": "s",
    "!": "i",
  };
  return [...text].map((char) => lookAlikes[char] ?? char).join("")
    .replace(/[^\p{L}]/gu, "");
}

function contextWords(email: string): string[] {
  return email.split(/[^\p{L}\p{N}]+/u).filter((word) => word.length >= 4);
}

/** `abcabcabcabc`: a short piece, several times. */
function isRepetition(text: string): boolean {
  return /^(.{1,5}?)\1+.{0,4}$/su.test(text);
}

const ROWS = [
  "qwertyuiopasdfghjklzxcvbnm",
  "qwertzuiopasdfghjklyxcvbnm",
  "azertyuiopqsdfghjklmwxcvbn",
  "abcdefghijklmnopqrstuvwxyz",
  "01234567890123456789",
  "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik9ol0p",
  "1q2w3e4r5t6y7u8i9o0p",
  "q1w2e3r4t5y6u7i8o9p0",
];

/** Three quarters of it are pieces of four and more from a keyboard's rows or a counting. */
function isWalk(text: string): boolean {
  const lines = [...ROWS, ...ROWS.map((row) => [...row].reverse().join(""))];
  let walked = 0;
  for (let at = 0; at < text.length;) {
    let length = 0;
    while (
      at + length < text.length &&
      lines.some((line) => line.includes(text.slice(at, at + length + 1)))
    ) length++;
    if (length >= 4) walked += length;
    at += Math.max(1, length);
  }
  return walked * 4 >= text.length * 3;
}

/** Words that common long passwords are built of, this product's own among them. */
const COMMON = [
  ...["password", "passwort", "passw", "pass", "word", "secret", "geheim"],
  ...["admin", "administrator", "root", "user", "login", "welcome", "letmein"],
  ...["changeme", "change", "default", "test", "testing", "guest", "demo"],
  ...["qwerty", "qwertz", "azerty", "asdf", "iloveyou", "love", "monkey"],
  ...["dragon", "master", "sunshine", "princess", "football", "baseball"],
  ...["superman", "batman", "shadow", "michael", "jennifer", "charlie"],
  ...["trustno", "hello", "freedom", "whatever", "starwars", "pokemon"],
  ...["computer", "internet", "samsung", "google", "microsoft", "apple"],
  ...["summer", "winter", "spring", "autumn", "january", "december", "monday"],
  ...["gateway", "console", "openai", "apikey", "token", "model", "server"],
  ...["abc", "abcd", "you", "the", "my", "is", "a", "i"],
];

/** Runs at most `max` at once; the others wait in the order they came. */
function createLimit(max: number): <T>(run: () => Promise<T>) => Promise<T> {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (run) => {
    if (running >= max) {
      await new Promise<void>((resolve) => waiting.push(resolve));
    } else running++;
    try {
      return await run();
    } finally {
      const next = waiting.shift();
      if (next === undefined) running--;
      else next();
    }
  };
}
