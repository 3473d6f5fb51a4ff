import assert from "node:assert/strict";
import { Candidates } from "../language/candidates.ts";
import { BYTE_TOKENS_FROM, END_TOKEN } from "../language/vocabulary.ts";
import { language } from "../test_support.ts";
import { certainLogprob, sampledLogprob } from "./logprobs.ts";

const { vocabulary } = language().tokenizer;
const tokenOf = (text: string) => vocabulary.tokenOf(text) ?? -1;

Deno.test("sampledLogprob() lists the most probable tokens in order, without the end", () => {
  const candidates = new Candidates(vocabulary.size);
  candidates.clear();
  candidates.add(tokenOf(" the"), 0.2);
  candidates.add(END_TOKEN, 0.4);
  candidates.add(tokenOf(" of"), 0.3);
  candidates.add(tokenOf(" and"), 0.1);
  const entry = sampledLogprob(tokenOf(" and"), candidates, 2, vocabulary);
  assert.equal(entry.token, " and");
  assert.equal(entry.logprob, Math.log(0.1));
  assert.deepEqual(entry.bytes, [0x20, 0x61, 0x6e, 0x64]);
  assert.deepEqual(
    entry.top_logprobs.map(({ token, logprob }) => [token, logprob]),
    [[" of", Math.log(0.3)], [" the", Math.log(0.2)]],
  );
  const none = sampledLogprob(tokenOf(" of"), candidates, 0, vocabulary);
  assert.deepEqual(none.top_logprobs, []);
});

Deno.test("a token without probability has a finite logprob", () => {
  const candidates = new Candidates(vocabulary.size);
  candidates.clear();
  candidates.add(tokenOf(" of"), 0);
  const entry = sampledLogprob(tokenOf(" of"), candidates, 1, vocabulary);
  assert.equal(entry.logprob, -9999);
});

Deno.test("certainLogprob() is 0, and names the byte of a token that is no text", () => {
  const entry = certainLogprob(BYTE_TOKENS_FROM + 0xe2, 3, vocabulary);
  assert.deepEqual(entry, {
    token: "bytes:\\xe2",
    logprob: 0,
    bytes: [0xe2],
    top_logprobs: [{ token: "bytes:\\xe2", logprob: 0, bytes: [0xe2] }],
  });
});
