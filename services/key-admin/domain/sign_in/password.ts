/** Passwords: how they are hashed, and which ones are good enough. */
import { hash, verify } from "@node-rs/argon2";
import type { ZxcvbnFactory as Estimator } from "@zxcvbn-ts/core";
import pLimit from "p-limit";

/**
 * Passwords as argon2id (ASVS 11.4.2, OWASP's first choice): 19 MiB, 2 passes,
 * 1 lane, about 25 ms. The stored string contains the parameters.
 */
const PARAMETERS = {
  /** argon2id; the library's enumeration exists only for the compiler. */
  algorithm: 2,
  memoryCost: 19_456,
  timeCost: 2,
  parallelism: 1,
};

/** Characters of the shortest password (ASVS 6.2.1). */
export const PASSWORD_CHARS_MIN = 12;
/** Characters of the longest one. Longer ones are refused before any work (6.2.9). */
export const PASSWORD_CHARS_MAX = 128;

/**
 * Passwords that take fewer guesses than 10 to this power are refused: zxcvbn's best
 * score.
 */
export const GUESSES_LOG10_MIN = 10;
/**
 * Estimating takes up to 30 ms for this many characters, and 150 ms for the longest
 * password.
 */
export const EXAMINED_CHARS_MAX = 40;

/**
 * Words that an attacker tries first here (ASVS 6.1.2): the product, what it does, and
 * who uses it. Words of the owner's address are added to these.
 */
export const CONTEXT_WORDS: readonly string[] = [
  "gateway",
  "console",
  "keyadmin",
  "edge",
  "worker",
  "apikey",
  "api",
  "openai",
  "chat",
  "completion",
  "model",
  "neutral",
  "token",
  "server",
  "admin",
  "administrator",
  "root",
  "owner",
  "login",
  "user",
  "key",
];

/**
 * Loaded for the first new password: the dictionaries take 20 MiB, and most days nobody
 * sets one.
 */
async function loadEstimator(): Promise<Estimator> {
  const { ZxcvbnFactory } = await import("@zxcvbn-ts/core");
  const common = await import("@zxcvbn-ts/language-common");
  const { adjacencyGraphs: graphs, dictionary } = common;
  return new ZxcvbnFactory({ dictionary, graphs });
}
let loading: Promise<Estimator> | undefined;

/** Hashes passwords, a few at the same time. */
export interface PasswordHasher {
  /** The string to store for a password. */
  hash(password: string): Promise<string>;
  /**
   * Whether a password is the stored one. `stored` is null for an account that does not
   * exist, which takes the same work (ASVS 6.3.8).
   */
  verify(storedHash: string | null, password: string): Promise<boolean>;
}

/**
 * Each hash uses a whole core. More at once would starve everything else on a small
 * machine.
 */
const AT_ONCE_MAX = 4;

/** Makes a hasher, and with it one hash for accounts that do not exist. */
export async function createPasswordHasher(): Promise<PasswordHasher> {
  const decoy = await hash("nobody has this password", PARAMETERS);
  const limit = pLimit(AT_ONCE_MAX);
  return {
    hash: (password) => limit(() => hash(normal(password), PARAMETERS)),
    verify: (storedHash, password) =>
      limit(async () => {
        const isRight = await verify(storedHash ?? decoy, normal(password));
        return storedHash !== null && isRight;
      }),
  };
}

/** Two systems may send the same password in two Unicode forms. */
const normal = (password: string): string => password.normalize("NFKC");

/** The length of a password in characters, in the form that is hashed. */
export const passwordChars = (password: string) => [...normal(password)].length;

/**
 * The problem with a new password, or null. Only its length and how guessable it is
 * count (ASVS 6.2).
 */
export async function passwordProblem(
  password: string,
  context: { email: string },
): Promise<string | null> {
  const length = passwordChars(password);
  if (length < PASSWORD_CHARS_MIN) {
    return `Use at least ${PASSWORD_CHARS_MIN} characters. A few words in a row are easy to remember.`;
  }
  if (length > PASSWORD_CHARS_MAX) {
    return `Use at most ${PASSWORD_CHARS_MAX} characters.`;
  }
  const examined = [...normal(password)].slice(0, EXAMINED_CHARS_MAX).join("");
  // Shorter words of the owner's address are in too many other words.
  const addressWords = context.email.toLowerCase().split(/[^\p{L}\p{N}]+/u)
    .filter((word) => word.length >= 3);
  const words = [...CONTEXT_WORDS, ...addressWords];
  loading ??= loadEstimator();
  const estimator = await loading;
  const { guessesLog10 } = estimator.check(examined, words);
  return guessesLog10 < GUESSES_LOG10_MIN
    ? "This password is too common. Choose a less guessable one, such as a few unrelated words."
    : null;
}
