// When a choice has ended, by the finish reasons of its chunks.
import assert from "node:assert/strict";
import { ChoiceEnding } from "./choice_ending.ts";

/** `c`: content, `f`: a finish reason, `cf`: both, `-`: neither. */
const ROWS: readonly {
  name: string;
  chunks: string;
  isSure: boolean;
  isWholeAtEnd: boolean;
  isWholeIfComplete: boolean;
}[] = [
  {
    name: "a finish reason of its own",
    chunks: "c c f",
    isSure: true,
    isWholeAtEnd: true,
    isWholeIfComplete: true,
  },
  {
    name: "a finish reason beside the last text",
    chunks: "- c cf",
    isSure: true,
    isWholeAtEnd: true,
    isWholeIfComplete: true,
  },
  {
    name: "one chunk with everything",
    chunks: "cf",
    isSure: false,
    isWholeAtEnd: true,
    isWholeIfComplete: true,
  },
  {
    name: "a finish reason in every chunk",
    chunks: "f cf cf cf",
    isSure: false,
    isWholeAtEnd: false,
    isWholeIfComplete: true,
  },
  {
    name: "a finish reason in every chunk, then one of its own",
    chunks: "cf cf f",
    isSure: false,
    isWholeAtEnd: true,
    isWholeIfComplete: true,
  },
  {
    name: "text after the finish reason",
    chunks: "c f c",
    isSure: false,
    isWholeAtEnd: false,
    isWholeIfComplete: true,
  },
  {
    name: "no finish reason",
    chunks: "c c",
    isSure: false,
    isWholeAtEnd: false,
    isWholeIfComplete: true,
  },
  {
    name: "a finish reason before any text, as while a prompt is read",
    chunks: "f",
    isSure: false,
    isWholeAtEnd: true,
    isWholeIfComplete: true,
  },
  {
    name: "nothing",
    chunks: "-",
    isSure: false,
    isWholeAtEnd: false,
    isWholeIfComplete: false,
  },
];

Deno.test("ChoiceEnding believes a finish reason only where it says something", () => {
  for (const { name, chunks, ...expected } of ROWS) {
    const ending = new ChoiceEnding();
    for (const chunk of chunks.split(" ")) {
      const word = chunk.includes("f") ? "stop" : "";
      ending.take({ hasContent: chunk.includes("c"), word });
    }
    assert.deepEqual(
      {
        isSure: ending.isSure,
        isWholeAtEnd: ending.isWhole({ isComplete: false }),
        isWholeIfComplete: ending.isWhole({ isComplete: true }),
      },
      expected,
      name,
    );
  }
});
