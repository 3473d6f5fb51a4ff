import assert from "node:assert/strict";
import { KEY_LIMITS } from "@gateway/shared/limits";
import { EXIT_CODES_HELP } from "./cli/command_line.ts";
import {
  ACCOUNT_RULE,
  ADDRESS_RATE,
  OWN_RATE,
  POOL_RATE,
  PROVIDER_RATE,
  type Rate,
  SITE_RATE,
  TOTAL_RATE,
} from "./domain/sign_in/attempts.ts";
import { LINK_SECONDS } from "./domain/sign_in/links.ts";
import {
  CONTEXT_WORDS,
  EXAMINED_CHARS_MAX,
  GUESSES_LOG10_MIN,
  PASSWORD_CHARS_MAX,
  PASSWORD_CHARS_MIN,
} from "./domain/sign_in/password.ts";
import { SESSION_LIMITS } from "./domain/sign_in/sessions.ts";
import { CREATION_RATE } from "./web/key_form.tsx";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const number = (value: number) => value.toLocaleString("en");
const rate = ({ count, perMs }: Rate) =>
  `${count} attempts at once, then one every ${perMs / count / 1_000} seconds`;

const { idleMs, absoluteMs, freshMs } = SESSION_LIMITS;
const { free, waitMs, waitMsMax } = ACCOUNT_RULE;
const chars = `${PASSWORD_CHARS_MIN} to ${PASSWORD_CHARS_MAX} characters`;
const known = ["gateway", "console", "openai", "apikey", "admin"];

/** The sentences of docs/console.md that have numbers, with the numbers of the code. */
const SENTENCES = [
  `after ${idleMs / MINUTE_MS} minutes without a request`,
  `and after ${absoluteMs / HOUR_MS} hours in any case`,
  "An hour after the password was last entered",
  `**An address** (for IPv6 a /64): ${rate(ADDRESS_RATE)}`,
  `IPv6 /48 has ${SITE_RATE.count} attempts and a /32 ${PROVIDER_RATE.count}`,
  `first ${OWN_RATE.count} attempts of an address do not count`,
  `The shared limit is ${rate(POOL_RATE)}`,
  `at most ${number(TOTAL_RATE.count)} attempts a minute`,
  `${waitMs / 1_000} second at first, ${waitMsMax / MINUTE_MS} minutes at most`,
  `for ${LINK_SECONDS.set_up / 60} minutes`,
  `invitation (\`owners invite\`, ${LINK_SECONDS.invite / 3_600} hours)`,
  `\`owners reset\` (${LINK_SECONDS.reset / 3_600} hour)`,
  chars,
  `fewer than 10^${GUESSES_LOG10_MIN} guesses`,
  `first ${EXAMINED_CHARS_MAX} characters`,
  ...known.map((word) => `\`${word}\``),
  "ten keys at once in the console, then one every six seconds",
  `at most ${number(KEY_LIMITS.keysPerOwnerMax)} keys`,
];

Deno.test("ASVS 6.1.1, 6.1.2, 6.4.1, 7.1.1, API6: docs/console.md has the code's numbers for passwords, attempts, sessions, links and keys", async () => {
  const file = new URL("../../docs/console.md", import.meta.url);
  const text = (await Deno.readTextFile(file)).replaceAll(/\s+/g, " ");
  for (const sentence of SENTENCES) {
    assert.ok(text.includes(sentence), sentence);
  }
  assert.deepEqual([freshMs, free], [HOUR_MS, 5]);
  assert.ok(known.every((word) => CONTEXT_WORDS.includes(word)));
  assert.deepEqual(CREATION_RATE, { count: 10, perMs: MINUTE_MS });
  const codes = [...text.matchAll(/\| (\d+) \|/g)].map(([, code]) => code);
  assert.deepEqual(codes, EXIT_CODES_HELP.match(/\d+/g));
});
