import assert from "node:assert/strict";
import { dictionary } from "@zxcvbn-ts/language-common";
import { seededRandom } from "../../../../tests/support/seeded_random.ts";
import {
  CONTEXT_WORDS,
  createPasswordHasher,
  EXAMINED_CHARS_MAX,
  passwordProblem,
} from "./password.ts";

const context = { email: "ada.lovelace@example.org" };

/** A phrase of exactly so many characters that nobody guesses. */
const phrase = (chars: number): string =>
  "tulip orbit cargo velvet mango quartz ".repeat(8).slice(0, chars);

Deno.test("ASVS 6.2.1, 6.2.9: a password has 12 to 128 characters, as people count them", async (t) => {
  const cases: [name: string, password: string, isFine: boolean][] = [
    ["11", "jxkvnqpwzrt", false],
    ["12", "jxkvnqpwzrtb", true],
    ["64", phrase(64), true],
    ["128", phrase(128), true],
    ["129", phrase(129), false],
    ["1 MB", phrase(100).repeat(10_000), false],
    ["11 emoji", "🔑🐎🔋📎🌊🎈🚲🌵🍉🧩🪐", false],
    ["12 emoji", "🔑🐎🔋📎🌊🎈🚲🌵🍉🧩🪐🎻", true],
    ["128 emoji", [..."🔑🐎🔋📎🌊🎈🚲🌵"].join("").repeat(16), true],
    ["11 and an accent", "jxkvnqpwzre\u0301", false],
    ["12 and an accent", "jxkvnqpwzrte\u0301", true],
    ["one that stands for 18", `jxkvnqpwzrtb${"\ufdfa".repeat(7)}`, false],
  ];
  for (const [name, password, isFine] of cases) {
    await t.step(name, () => {
      const problem = passwordProblem(password, context);
      assert.equal(problem === null, isFine, problem ?? "accepted");
    });
  }
});

Deno.test("ASVS 6.2.5: any characters will do", async (t) => {
  const passwords = [
    ...["correct horse battery staple", "jxkvnqpwzrtbm", "JXKVNQPWZRTBM"],
    ...["mein langes passwort für morgen", "密码要够长才行所以我写了很多字"],
    ...["kp9#Lm2$vQ8!xR", "83 92 17 40 55 61", "   tulip   orbit   cargo"],
    ...["Tr0ub4dor&3 with more", "\u0000tulip\u0007orbit\u001bcargo"],
  ];
  for (const password of passwords) {
    await t.step(JSON.stringify(password), () => {
      assert.equal(passwordProblem(password, context), null);
    });
  }
});

Deno.test("ASVS 6.1.2, 6.2.4: what is guessed first is refused, words of the product and of the owner's address too", async (t) => {
  const passwords = [
    ...["password1234", "P@ssw0rd!2024", "passwordpassword", "adminadmin123"],
    ...["123456789012", "qwertyuiop12", "1qaz2wsx3edc", "aaaaaaaaaaaa"],
    ...["abcabcabcabc", "iloveyou2024!", "gatewayconsole", "ChangeMe12345"],
    ...["lovelace-2024", "Ada.Lovelace1", "Gateway2026!!", "openai-apikey"],
  ];
  for (const password of passwords) {
    await t.step(password, () => {
      assert.match(passwordProblem(password, context) ?? "", /guess/);
    });
  }
});

const COMMON = dictionary["passwords-common"];
const WORDS = dictionary["diceware-common"];
const LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL!-_";
/** Every so many of a list, which are enough to try. */
const every = <T>(step: number, list: readonly T[]): T[] =>
  list.filter((_, at) => at % step === 0);

/** How short passwords are made longer where twelve characters are needed. */
const DECORATIONS: ((word: string) => string)[] = [
  (word) => word + word,
  (word) => `${word}${word}1`,
  (word) => `${word}12345678`,
  (word) => `${word}2024!!`,
  (word) => `${word}@2025`,
  (word) => `${word}.1987.`,
  (word) => `!!!${word}2026`,
  (word) => word[0]?.toUpperCase() + word.slice(1) + "2026!",
  (word) => `${word}qwerty`,
  (word) => word.replaceAll("a", "@").replaceAll("o", "0") + "1999!",
  (word) => word.toUpperCase() + "!!!!!!",
];

Deno.test("ASVS 6.2.4: the most used passwords of twelve characters and more are refused, and what is made from them", async (t) => {
  const words = [...CONTEXT_WORDS, "lovelace"];
  const rows: [name: string, candidates: string[]][] = [
    ["the list", every(10, COMMON.filter(({ length }) => length >= 12))],
    [
      "the first of the list, decorated",
      every(20, COMMON.slice(0, 300))
        .flatMap((word) => DECORATIONS.map((decorate) => decorate(word))),
    ],
    [
      "two of the first",
      COMMON.slice(0, 7).flatMap((first) =>
        COMMON.slice(0, 7).map((second) => `${first}-${second}`)
      ),
    ],
    [
      "words of the product and the owner",
      every(4, words).flatMap((word) =>
        DECORATIONS.map((decorate) => decorate(word))
      ),
    ],
  ];
  for (const [name, candidates] of rows) {
    await t.step(name, () => {
      const long = candidates.filter(({ length }) => length >= 12);
      assert.ok(long.length >= 20, `${long.length}`);
      const passed = long.filter((password) =>
        passwordProblem(password, context) === null
      );
      assert.deepEqual(passed, []);
    });
  }
});

Deno.test("phrases of four words and what chance makes are not guessable", () => {
  const random = seededRandom(20_261_120);
  const pick = (list: ArrayLike<string>) =>
    list[Math.floor(random() * list.length)] ?? "";
  for (let n = 0; n < 50; n++) {
    const phrase = Array.from({ length: 4 }, () => pick(WORDS)).join(" ");
    const made = Array.from({ length: 12 }, () => pick(LETTERS)).join("");
    for (const password of [`${phrase} etc`, made]) {
      assert.equal(passwordProblem(password, context), null, password);
    }
  }
});

Deno.test("only the first 40 characters of a password are judged, which bounds the work", () => {
  const weak = "password".repeat(6).slice(0, EXAMINED_CHARS_MAX);
  assert.match(passwordProblem(`${weak}${phrase(80)}`, context) ?? "", /guess/);
  assert.equal(passwordProblem(`${phrase(40)}${weak}`, context), null);
});

Deno.test("ASVS 6.2.8: a password is verified as a whole and as it was typed", async () => {
  const hasher = await createPasswordHasher();
  const stored = await hasher.hash(phrase(128));
  assert.equal(await hasher.verify(stored, phrase(128)), true);
  const near = [
    phrase(127),
    `${phrase(127)}X`,
    phrase(128).toUpperCase(),
    `${phrase(128)} `,
    ` ${phrase(128)}`,
    phrase(128).replace("t", "T"),
  ];
  for (const password of near) {
    assert.equal(await hasher.verify(stored, password), false, password);
  }
});

Deno.test("ASVS 11.4.2: argon2id with 19 MiB, 2 passes, 1 lane", async () => {
  const hasher = await createPasswordHasher();
  const stored = await hasher.hash("correct horse battery staple");
  assert.match(stored, /^\$argon2id\$v=19\$m=19456,t=2,p=1\$/);
  assert.notEqual(await hasher.hash("correct horse battery staple"), stored);
  assert.equal(
    await hasher.verify(stored, "correct horse battery staple"),
    true,
  );
  assert.equal(await hasher.verify(stored, "correct horse"), false);
});

Deno.test("the same password in another Unicode form is the same password", async () => {
  const hasher = await createPasswordHasher();
  const stored = await hasher.hash("caf\u00e9 cr\u00e8me br\u00fbl\u00e9e");
  assert.ok(
    await hasher.verify(stored, "cafe\u0301 cre\u0300me bru\u0302le\u0301e"),
  );
});

Deno.test("ASVS 6.3.8: the stand-in for an account that is not there opens nothing", async () => {
  const hasher = await createPasswordHasher();
  assert.equal(await hasher.verify(null, "nobody has this password"), false);
});
