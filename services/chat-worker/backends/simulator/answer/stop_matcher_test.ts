import assert from "node:assert/strict";
import { integerBetween, pick, randomFrom } from "../sampling/random.ts";
import { StopMatcher } from "./stop_matcher.ts";

interface Case {
  name: string;
  stops: string[];
  pieces: string[];
  /** What each piece releases, and the end. */
  released: string[];
  isHit: boolean;
}

const CASES: Case[] = [
  {
    name: "no stops hold nothing",
    stops: [],
    pieces: ["a", "b"],
    released: ["a", "b", ""],
    isHit: false,
  },
  {
    name: "an empty stop is none",
    stops: [""],
    pieces: ["a"],
    released: ["a", ""],
    isHit: false,
  },
  {
    name: "inside a piece",
    stops: ["lo"],
    pieces: ["hello world"],
    released: ["hel", ""],
    isHit: true,
  },
  {
    name: "over three pieces",
    stops: ["STOP"],
    pieces: ["one S", "TO", "P two", "three"],
    released: ["one ", "", "", "", ""],
    isHit: true,
  },
  {
    name: "a beginning that leads nowhere",
    stops: ["STOP"],
    pieces: ["ST", "ART"],
    released: ["", "START", ""],
    isHit: false,
  },
  {
    name: "what is held comes out at the end",
    stops: ["STOP"],
    pieces: ["a ST"],
    released: ["a ", "ST"],
    isHit: false,
  },
  {
    name: "a stop that begins within its own beginning",
    stops: ["aab"],
    pieces: ["aa", "a", "ab!"],
    released: ["", "a", "a", ""],
    isHit: true,
  },
  {
    name: "of two, the one that is complete first",
    stops: ["bcd", "c"],
    pieces: ["abcd"],
    released: ["ab", ""],
    isHit: true,
  },
  {
    name: "of two complete at once, the longer",
    stops: ["c", "abc"],
    pieces: ["xab", "c"],
    released: ["x", "", ""],
    isHit: true,
  },
  {
    name: "over lines and emoji",
    stops: ["\n🙂"],
    pieces: ["hi\n", "🙂"],
    released: ["hi", "", ""],
    isHit: true,
  },
];

for (const { name, stops, pieces, released, isHit } of CASES) {
  Deno.test(`the stop matcher cuts at stop texts: ${name}`, () => {
    const matcher = new StopMatcher(stops);
    const given = pieces.map((piece) => matcher.push(piece));
    assert.deepEqual([...given, matcher.finish()], released);
    assert.equal(matcher.isHit, isHit);
  });
}

Deno.test("the stop matcher finds what a search in the whole text finds", () => {
  const random = randomFrom("stops");
  const wordOf = (lengthMax: number) =>
    Array.from(
      { length: integerBetween(random, 1, lengthMax) },
      () => pick(random, ["a", "b", "c"]),
    ).join("");
  for (let round = 0; round < 2000; round++) {
    const stops = [wordOf(4), wordOf(4)];
    const pieces = Array.from({ length: 8 }, () => wordOf(4));
    const matcher = new StopMatcher(stops);
    const out = pieces.map((piece) => matcher.push(piece)).join("") +
      matcher.finish();
    assert.equal(out, cutByHand(pieces.join(""), stops));
  }
});

/** The text up to the stop that is complete first. */
function cutByHand(text: string, stops: readonly string[]): string {
  for (let end = 1; end <= text.length; end++) {
    const met = stops.filter((stop) => text.slice(0, end).endsWith(stop));
    const length = Math.max(0, ...met.map((stop) => stop.length));
    if (length > 0) return text.slice(0, end - length);
  }
  return text;
}
