/**
 * What servers of messages, responses, completions, vectors and ranks answer, through
 * edge, bus and worker: a file below `forwarded/` for each case. It has the sections of
 * `case_file.ts`, and `path`, below `/v1`. Its `answer` has the status, and as JSON:
 *
 * - `same`: true if the client gets the body of the server to the byte, else false.
 * - `ends`: what the body of the answer ends with, or `has`: what it contains.
 * - `usage`: members of what is charged.
 */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { CLOSE } from "../support/model_servers/model_answers.ts";
import { type ForwardRig, setup } from "../forward/forward_rig.ts";
import { readSources } from "../support/repository/source_files.ts";
import { until } from "../support/wait_for.ts";
import { CaseFile } from "./case_file.ts";

/** The model of each path, and what its requests need besides. */
const REQUESTS: { readonly [path: string]: object } = {
  "/messages": { model: "talk", max_tokens: 10, messages: [] },
  "/responses": { model: "talk", input: "hi" },
  "/completions": { model: "talk", prompt: "hi" },
  "/embeddings": { model: "embed", input: ["a", "b"] },
  "/rerank": { model: "order", query: "a", documents: ["b"] },
};

/** What is to become of the server's answer. */
interface Expected {
  same?: boolean;
  ends?: string;
  has?: string;
  usage?: { [count: string]: unknown };
}

Deno.test("every case about forwarded answers is read through the gateway", async (t) => {
  await using rig = await setup(() => [CLOSE]);
  const files = readSources(["tests/corpus/forwarded"], /\.txt$/);
  assert.ok(files.length > 0);
  for (const { path, text } of files) {
    const name = path.replace(/^.*\/|\.txt$/g, "");
    await t.step(name, () => check(new CaseFile(text), rig));
  }
});

async function check(corpusCase: CaseFile, rig: ForwardRig): Promise<void> {
  const [server = assert.fail()] = rig.servers;
  const response = corpusCase.response() ?? new Uint8Array();
  server.reply = () => [{ send: response }, CLOSE];
  const [requestCount, settled] = [
    server.requests.length,
    rig.settlements().length,
  ];
  const path = corpusCase.text("path").trim();
  const body = { ...REQUESTS[path], ...corpusCase.json("request") };
  const reply = await rig.post(path.slice(1), JSON.stringify(body));
  const text = Buffer.from(await reply.arrayBuffer()).toString();
  const { status, answer } = corpusCase.answer();
  const { same, ends = "", has = "", usage }: Expected = answer;
  assert.equal(reply.status, status, text);
  if (same !== undefined) {
    const body = corpusCase.text("response").split("\n\n").slice(1).join(
      "\n\n",
    );
    assert.equal(text === body, same, `${JSON.stringify(text)}\n${body}`);
  }
  assert.ok(text.endsWith(ends), text);
  assert.ok(text.includes(has), text);
  // More than one would cost the work of the model twice.
  assert.equal(server.requests.length, requestCount + 1);
  const [outcome] = await until(() => {
    const all = rig.settlements().slice(settled);
    return all.length > 0 ? all : undefined;
  });
  if (usage !== undefined) assert.partialDeepStrictEqual(outcome, { usage });
}
