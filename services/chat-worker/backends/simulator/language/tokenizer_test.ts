import assert from "node:assert/strict";
import { randomFrom } from "../sampling/random.ts";
import { language } from "../test_support.ts";
import { BYTE_TOKENS_FROM } from "./vocabulary.ts";

const { tokenizer } = language();

const TEXTS: { name: string; text: string }[] = [
  { name: "nothing", text: "" },
  { name: "English", text: "It's a gateway, isn't it? Yes: 1024 km." },
  { name: "words it does not know", text: "Zyzzyva supercalifragilistic" },
  { name: "white space", text: " a  b   c\n\n\nd\t\te\r\n f " },
  { name: "code", text: "fn main() {\n    let x = vec![1, 2, 3];\n}\n" },
  { name: "JSON", text: '{"a":[1,2.5,{"b":null}],"c":"d\\"e"}' },
  { name: "umlauts", text: "Größe, façade, señor, Ærø, naïve" },
  { name: "Chinese", text: "你好，世界！網關 龘" },
  { name: "Japanese", text: "こんにちは、ゲートウェイ。々ー" },
  { name: "Korean", text: "안녕하세요 세계" },
  { name: "Russian", text: "Привет, как дела?" },
  { name: "Arabic", text: "مرحبا بالعالم" },
  { name: "Hindi with marks", text: "नमस्ते दुनिया" },
  { name: "emoji", text: "🚀👩‍👩‍👧‍👦🇩🇪 ok 🙂" },
  { name: "combining marks", text: "e\u0301 a\u0308\u0323" },
  {
    name: "control characters",
    text: "\u0000\u0001\u0007\u001b[0m\u007f\u0085\u2028\ufeff",
  },
  { name: "mathematical letters", text: "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠀀𠀁" },
  { name: "a long word", text: "a".repeat(3000) },
  { name: "the replacement character", text: "\ufffd" },
];

for (const { name, text } of TEXTS) {
  Deno.test(`the tokenizer loses nothing of ${name}`, () => {
    assert.equal(tokenizer.decode(tokenizer.encode(text)), text);
  });
}

Deno.test("the tokenizer loses nothing of any text", () => {
  const random = randomFrom("texts");
  for (let round = 0; round < 300; round++) {
    const text = Array.from({ length: 40 }, () => anyCharacter(random())).join(
      "",
    );
    assert.equal(tokenizer.decode(tokenizer.encode(text)), text);
  }
});

Deno.test("half a surrogate pair becomes the replacement character", () => {
  assert.equal(tokenizer.decode(tokenizer.encode("a\ud83dz")), "a\ufffdz");
});

Deno.test("a text in portions has the tokens it has at once", () => {
  const text = TEXTS.map((row) => row.text).join(" ");
  const whole = tokenizer.encode(text);
  for (const size of [1, 2, 7, 64, 1000]) {
    const tokens: number[] = [];
    let from = 0;
    while (from < text.length) {
      const to = Math.min(from + size, text.length);
      const end = tokenizer.encodePortion(
        text,
        from,
        to,
        (token) => tokens.push(token),
      );
      assert.ok(end >= to);
      from = end;
    }
    assert.deepEqual(tokens, whole);
  }
});

Deno.test("words of the corpus are one token, unknown signs one per byte", () => {
  assert.equal(tokenizer.encode("The gateway").length, 2);
  assert.deepEqual(
    tokenizer.encode("€"),
    [0xe2, 0x82, 0xac].map((byte) => BYTE_TOKENS_FROM + byte),
  );
  assert.equal(tokenizer.encode("\u0000").length, 1);
});

Deno.test("an unknown word is spelt with the longest tokens from its left", () => {
  const { texts } = tokenizer.vocabulary;
  const [first = 0, ...rest] = tokenizer.encode(" gatewayzzz");
  assert.equal(texts[first], " gateway");
  assert.equal(rest.map((token) => texts[token]).join(""), "zzz");
});

Deno.test("English prose takes about a token for three characters or more", () => {
  const text =
    "Please summarise the following article about energy policy, and mention the most important numbers in it.";
  const tokens = tokenizer.encode(text).length;
  assert.ok(tokens < text.length / 2.5, `${tokens} tokens`);
  assert.ok(tokens > text.length / 8, `${tokens} tokens`);
});

function anyCharacter(chance: number): string {
  const code = Math.floor(chance * 0x10ffff);
  const isSurrogate = code >= 0xd800 && code <= 0xdfff;
  // Every other one is ASCII, so that runs of all kinds meet.
  if (isSurrogate || code % 2 === 0) return String.fromCharCode(code % 128);
  return String.fromCodePoint(code);
}
