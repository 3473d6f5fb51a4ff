/** Which passwords are accepted, and how they are stored and verified. */
import assert from "node:assert/strict";
import { dictionary } from "@zxcvbn-ts/language-common";
import { amountOf } from "../../../../tests/support/amount.ts";
import {
  CONTEXT_WORDS,
  createPasswordHasher,
  EXAMINED_CHARS_MAX,
  passwordProblem,
} from "./password.ts";

const context = { email: "ada.lovelace@example.org" };

/** A phrase of this many characters that is hard to guess. */
const phrase = (chars: number): string =>
  "tulip orbit cargo velvet mango quartz ".repeat(8).slice(0, chars);

Deno.test("ASVS 6.2.1, 6.2.9: a password has 12 to 128 characters, as people count them", async () => {
  const cases: { name: string; password: string; isFine: boolean }[] = [
    { name: "11", password: "jxkvnqpwzrt", isFine: false },
    { name: "12", password: "jxkvnqpwzrtb", isFine: true },
    { name: "64", password: phrase(64), isFine: true },
    { name: "128", password: phrase(128), isFine: true },
    { name: "129", password: phrase(129), isFine: false },
    { name: "1 MB", password: phrase(100).repeat(10_000), isFine: false },
    { name: "11 emoji", password: "🔑🐎🔋📎🌊🎈🚲🌵🍉🧩🪐", isFine: false },
    { name: "12 emoji", password: "🔑🐎🔋📎🌊🎈🚲🌵🍉🧩🪐🎻", isFine: true },
    {
      name: "128 emoji",
      password: [..."🔑🐎🔋📎🌊🎈🚲🌵"].join("").repeat(16),
      isFine: true,
    },
    { name: "11 and an accent", password: "jxkvnqpwzre\u0301", isFine: false },
    { name: "12 and an accent", password: "jxkvnqpwzrte\u0301", isFine: true },
    {
      name: "one character that normalises to 18",
      password: `jxkvnqpwzrtb${"\ufdfa".repeat(7)}`,
      isFine: false,
    },
  ];
  for (const { name, password, isFine } of cases) {
    const problem = await passwordProblem(password, context);
    assert.equal(problem === null, isFine, `${name}: ${problem}`);
  }
});

Deno.test("ASVS 6.2.5: any characters are allowed", async () => {
  const passwords = [
    "correct horse battery staple",
    "jxkvnqpwzrtbm",
    "JXKVNQPWZRTBM",
    "mein langes passwort für morgen",
    "密码要够长才行所以我写了很多字",
    "kp9#Lm2$vQ8!xR",
    "83 92 17 40 55 61",
    "   tulip   orbit   cargo",
    "Tr0ub4dor&3 with more",
    "\u0000tulip\u0007orbit\u001bcargo",
  ];
  for (const password of passwords) {
    assert.equal(await passwordProblem(password, context), null, password);
  }
});

const LIKELY = [
  "password1234",
  "P@ssw0rd!2024",
  "passwordpassword",
  "adminadmin123",
  "123456789012",
  "qwertyuiop12",
  "1qaz2wsx3edc",
  "aaaaaaaaaaaa",
  "abcabcabcabc",
  "iloveyou2024!",
  "gatewayconsole",
  "ChangeMe12345",
  "lovelace-2024",
  "Ada.Lovelace1",
  "Gateway2026!!",
  "openai-apikey",
];
const COMMON = dictionary["passwords-common"];
/** A sample of a list. */
const every = <T>(step: number, list: readonly T[]): T[] =>
  list.filter((_, at) => at % step === 0);

/** Of this many entries of the list, and of its first ones, one is tried. */
const LIST_STEP = amountOf({ usual: 20, full: 10 });
const FIRST_STEP = amountOf({ usual: 60, full: 20 });

/** How people lengthen short passwords to twelve characters. */
const decorated = (word: string): string[] => [
  word + word,
  `${word}${word}1`,
  `${word}12345678`,
  `${word}2024!!`,
  `${word}@2025`,
  `${word}.1987.`,
  `!!!${word}2026`,
  `${word}qwerty`,
  word[0]?.toUpperCase() + word.slice(1) + "2026!",
  word.replaceAll("a", "@").replaceAll("o", "0") + "1999!",
  word.toUpperCase() + "!!!!!!",
];

Deno.test("ASVS 6.1.2, 6.2.4: common passwords, and words of the product or the address, are refused", async () => {
  const words = every(4, [...CONTEXT_WORDS, "lovelace"]);
  const first = COMMON.slice(0, amountOf({ usual: 4, full: 7 }));
  const rows: [name: string, candidates: string[]][] = [
    ["what people choose", LIKELY],
    ["the list", every(LIST_STEP, COMMON)],
    [
      "its first entries, decorated",
      every(FIRST_STEP, COMMON.slice(0, 300)).flatMap(decorated),
    ],
    [
      "two of its first entries",
      first.flatMap((a) => first.map((b) => `${a}-${b}`)),
    ],
    ["words of the product and the owner", words.flatMap(decorated)],
  ];
  for (const [name, candidates] of rows) {
    const long = candidates.filter(({ length }) => length >= 12);
    assert.ok(long.length >= 10, name);
    const passed: string[] = [];
    for (const password of long) {
      const problem = await passwordProblem(password, context);
      if (!problem?.includes("a less guessable one")) passed.push(password);
    }
    assert.deepEqual(passed, [], name);
  }
});

Deno.test("only the first 40 characters of a password are estimated, which bounds the work", async () => {
  const weak = "password".repeat(6).slice(0, EXAMINED_CHARS_MAX);
  const problemOf = (password: string) => passwordProblem(password, context);
  assert.match(await problemOf(`${weak}${phrase(80)}`) ?? "", /guess/);
  assert.equal(await problemOf(`${phrase(40)}${weak}`), null);
});

Deno.test("ASVS 6.2.8, 6.3.8, 11.4.2: argon2id verifies the whole password as typed, and none without account", async () => {
  const hasher = await createPasswordHasher();
  const stored = await hasher.hash(phrase(128));
  assert.match(stored, /^\$argon2id\$v=19\$m=19456,t=2,p=1\$/);
  assert.notEqual(await hasher.hash(phrase(128)), stored);
  const cafe = await hasher.hash("caf\u00e9 cr\u00e8me br\u00fbl\u00e9e");
  const rows: { hash: string | null; password: string; isRight: boolean }[] = [
    { hash: stored, password: phrase(128), isRight: true },
    { hash: stored, password: phrase(127), isRight: false },
    { hash: stored, password: `${phrase(127)}X`, isRight: false },
    { hash: stored, password: phrase(128).toUpperCase(), isRight: false },
    { hash: stored, password: `${phrase(128)} `, isRight: false },
    { hash: stored, password: ` ${phrase(128)}`, isRight: false },
    { hash: stored, password: phrase(128).replace("t", "T"), isRight: false },
    // The same text in another Unicode form.
    {
      hash: cafe,
      password: "cafe\u0301 cre\u0300me bru\u0302le\u0301e",
      isRight: true,
    },
    { hash: null, password: "nobody has this password", isRight: false },
  ];
  for (const { hash, password, isRight } of rows) {
    assert.equal(await hasher.verify(hash, password), isRight, password);
  }
});
