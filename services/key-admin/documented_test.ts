import assert from "node:assert/strict";
import { KEY_LIMITS } from "@gateway/shared/limits";
import { EXIT_CODES_HELP } from "./cli/command_line.ts";
import {
  ACCOUNT_RULE,
  ADDRESS_RATE,
  OWN_RATE,
  POOL_RATE,
  PROVIDER_RATE,
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
import { CREATION_RATE } from "./web/key_requests.tsx";

/** The sentences of docs/console.md that have numbers, with the numbers of the code. */
async function page(): Promise<string> {
  const file = new URL("../../docs/console.md", import.meta.url);
  return (await Deno.readTextFile(file)).replaceAll(/\s+/g, " ");
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

Deno.test("ASVS 7.1.1: docs/console.md says when sessions end", async () => {
  const text = await page();
  const { idleMs, absoluteMs, freshMs } = SESSION_LIMITS;
  const ends = `after ${
    idleMs / MINUTE_MS
  } minutes without a request and after ${
    absoluteMs / HOUR_MS
  } hours in any case`;
  assert.ok(text.includes(ends), ends);
  assert.equal(freshMs, HOUR_MS);
  assert.ok(text.includes("An hour after the password was last entered"));
});

Deno.test("ASVS 6.1.1, 6.4.1: docs/console.md says how guessing is slowed down, and how long links are good", async () => {
  const text = await page();
  const seconds = ({ count, perMs }: { count: number; perMs: number }) =>
    `${count} tries at once, then one every ${perMs / count / 1_000} seconds`;
  const { free, waitMs, waitMsMax } = ACCOUNT_RULE;
  assert.equal(free, 5);
  const sentences = [
    `**An address** (for IPv6 a /64): ${seconds(ADDRESS_RATE)}`,
    `IPv6 /48 has ${SITE_RATE.count} tries and a /32 ${PROVIDER_RATE.count}`,
    `first ${OWN_RATE.count} tries are its own`,
    `the further tries of all together: ${seconds(POOL_RATE)}`,
    `more than ${TOTAL_RATE.count.toLocaleString("en")} tries a minute`,
    `${waitMs / 1_000} second at first, ${
      waitMsMax / MINUTE_MS
    } minutes at most`,
    `for ${LINK_SECONDS.set_up / 60} minutes`,
    `invitation (\`owners invite\`, ${LINK_SECONDS.invite / 3_600} hours)`,
    `\`owners reset\` (${LINK_SECONDS.reset / 3_600} hour)`,
  ];
  for (const sentence of sentences) {
    assert.ok(text.includes(sentence), sentence);
  }
});

Deno.test("ASVS 6.1.2: docs/console.md says what passwords may be, and which words count as known", async () => {
  const text = await page();
  const bounds = `${PASSWORD_CHARS_MIN} to ${PASSWORD_CHARS_MAX} characters`;
  assert.ok(text.includes(bounds));
  assert.ok(text.includes(`fewer than 10^${GUESSES_LOG10_MIN} guesses`));
  assert.ok(text.includes(`first ${EXAMINED_CHARS_MAX} characters`));
  for (const word of ["gateway", "console", "openai", "apikey", "admin"]) {
    assert.ok(CONTEXT_WORDS.includes(word), word);
    assert.ok(text.includes(`\`${word}\``), word);
  }
});

Deno.test("API6: docs/console.md says how many keys an owner makes and has", async () => {
  const text = await page();
  assert.deepEqual(CREATION_RATE, { count: 10, perMs: MINUTE_MS });
  assert.ok(text.includes("ten keys at once"));
  assert.ok(text.includes("then one every six seconds"));
  const most = KEY_LIMITS.keysPerOwnerMax.toLocaleString("en");
  assert.ok(text.includes(`at most ${most} keys`), most);
});

Deno.test("docs/console.md lists the exit codes that the help lists", async () => {
  const rows = [...(await page()).matchAll(/\| (\d+) \|/g)];
  const codes = rows.map(([, code = ""]) => code);
  assert.deepEqual(codes, EXIT_CODES_HELP.match(/\d+/g));
});
