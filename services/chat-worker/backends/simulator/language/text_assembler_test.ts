import assert from "node:assert/strict";
import { language } from "../test_support.ts";
import { TextAssembler } from "./text_assembler.ts";
import { BYTE_TOKENS_FROM } from "./vocabulary.ts";

const { vocabulary } = language().tokenizer;
const word = language().tokenizer.encode("The")[0] ?? 0;

const CASES: { name: string; input: (number | "The")[]; pieces: string[] }[] = [
  { name: "ASCII bytes", input: [0x41, 0x0a], pieces: ["A", "\n", ""] },
  {
    name: "two bytes",
    input: [0xc3, 0xa9],
    pieces: ["", "é", ""],
  },
  {
    name: "four bytes",
    input: [0xf0, 0x9f, 0x9a, 0x80],
    pieces: ["", "", "", "🚀", ""],
  },
  {
    name: "an unfinished end",
    input: [0xe2, 0x82],
    pieces: ["", "", "\ufffd"],
  },
  {
    name: "a word inside a character",
    input: [0xe2, "The"],
    pieces: ["", "\ufffdThe", ""],
  },
  {
    name: "a new character inside another",
    input: [0xe2, 0xc3, 0xa9],
    pieces: ["", "\ufffd", "é", ""],
  },
  {
    name: "a byte that begins nothing",
    input: [0x80, 0xff, "The"],
    pieces: ["\ufffd", "\ufffd", "The", ""],
  },
];

for (const { name, input, pieces } of CASES) {
  Deno.test(`the assembler gives a character with its last byte: ${name}`, () => {
    const assembler = new TextAssembler(vocabulary);
    const given = input.map((one) =>
      assembler.push(one === "The" ? word : BYTE_TOKENS_FROM + one)
    );
    assert.deepEqual([...given, assembler.flush()], pieces);
  });
}
