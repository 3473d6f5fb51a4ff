import assert from "node:assert/strict";
import { dictionary } from "@zxcvbn-ts/language-common";
import { seededRandom } from "../../../../tests/support/seeded_random.ts";
import { CONTEXT_WORDS, isGuessable, triesLog10 } from "./guessable.ts";
import { PASSWORD_CHARS_MIN } from "./password.ts";

const COMMON = dictionary["passwords-common"];
const WORDS = dictionary["diceware-common"];
const OWNER = ["ada", "lovelace"];

const isLongEnough = (password: string): boolean =>
  [...password].length >= PASSWORD_CHARS_MIN;

/** What the first of these are made into where twelve characters are asked for. */
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

Deno.test("ASVS 6.2.4: the most used passwords of twelve characters and more are refused, and all that are made like them", async (t) => {
  const refuseAll = (name: string, candidates: string[], atLeast: number) =>
    t.step(name, () => {
      const policy = [...new Set(candidates)].filter(isLongEnough);
      assert.ok(policy.length >= atLeast, `${policy.length}`);
      const passed = policy.filter((password) => !isGuessable(password, OWNER));
      assert.deepEqual(passed, []);
    });
  await refuseAll("the list", COMMON, 300);
  await refuseAll(
    "the first 500 of the list, decorated",
    COMMON.slice(0, 500)
      .flatMap((word) => DECORATIONS.map((decorate) => decorate(word))),
    3_000,
  );
  await refuseAll(
    "two of the first 50",
    COMMON.slice(0, 50).flatMap((first) =>
      COMMON.slice(0, 50).flatMap((second) => [
        first + second,
        `${first}-${second}`,
      ])
    ),
    1_000,
  );
  await refuseAll(
    "words of the product and the owner",
    [...CONTEXT_WORDS, ...OWNER].flatMap((word) =>
      DECORATIONS.map((decorate) => decorate(word))
    ),
    100,
  );
  await refuseAll("walks and repetitions", [
    ...["qwertyuiop12", "1qaz2wsx3edc", "zxcvbnm,./12", "poiuytrewq99"],
    ...["123456789012", "0987654321098", "abcdefghijkl", "q1w2e3r4t5y6"],
    ...["aaaaaaaaaaaa", "abcabcabcabc", "xyzzyxyzzyxyzzy", "12121212121212"],
    ...["!!!!!!!!!!!!", "2020202020202020", "p4ssw0rdp4ssw0rd"],
  ], 12);
});

Deno.test("phrases of four words and what chance makes are not guessable", () => {
  const random = seededRandom(20_261_120);
  const pick = (list: readonly string[]) =>
    list[Math.floor(random() * list.length)] ?? "";
  const letters = [..."abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKL!-_"];
  for (let n = 0; n < 100; n++) {
    const phrase = [1, 2, 3, 4].map(() => pick(WORDS)).join(" ");
    const made = Array.from({ length: 14 }, () => pick(letters)).join("");
    for (const password of [phrase, made]) {
      assert.ok(
        !isLongEnough(password) || !isGuessable(password, OWNER),
        password,
      );
    }
  }
});

Deno.test("triesLog10() takes the cheapest way to say a password", async (t) => {
  const cases: [password: string, least: number, most: number][] = [
    ["password", 0.3, 0.4],
    ["passwordpassword", 0.6, 0.7],
    ["p@ssw0rd", 0.7, 0.9],
    ["password2024", 2.2, 2.4],
    ["lovelace", 0, 0],
    ["lovelace!", 1, 1],
    ["xkqzjvwp", 8, 8],
    ["", 0, 0],
  ];
  for (const [password, least, most] of cases) {
    await t.step(password, () => {
      const tries = triesLog10(password, OWNER);
      assert.ok(tries >= least && tries <= most, `${tries}`);
    });
  }
});

Deno.test("judging a password takes less than 10 ms, the longest ones too", () => {
  const long = [
    "p4ssw0rd",
    "aB1!",
    "tulip orbit cargo velvet ",
    "20241231",
    "a",
  ]
    .map((piece) => piece.repeat(128).slice(0, 128));
  const timesMs = Array.from({ length: 11 }, () => {
    const startMs = performance.now();
    for (const password of long) isGuessable(password, OWNER);
    return (performance.now() - startMs) / long.length;
  }).sort((a, b) => a - b);
  assert.ok((timesMs[5] ?? Infinity) < 10, `${timesMs}`);
});
