// Promise: hostile bodies of the forwarded endpoints are refused with a reason, in the
// form of the dialect, soon, and before any model server hears of them.
import assert from "node:assert/strict";
import { jsonResponse } from "../support/model_servers/model_answers.ts";
import { SERVER_ABILITIES } from "@gateway/shared/models/dialects";
import { KEY, setupWith } from "../forward/forward_rig.ts";
import { encoder, HOSTILE, keys } from "./bodies_fixture.ts";

/** The paths, and the model and the member that each needs. */
const PATHS: readonly [path: string, member: string][] = [
  ["messages", '"model":"talk","max_tokens":5,"messages":[]'],
  ["messages/count_tokens", '"model":"talk","messages":[]'],
  ["responses", '"model":"talk","input":"a"'],
  ["responses/input_tokens", '"model":"talk","input":"a"'],
  ["responses/compact", '"model":"talk","input":"a"'],
  ["moderations", '"model":"talk","input":"a"'],
  ["completions", '"model":"talk","prompt":"a"'],
  ["embeddings", '"model":"embed","input":"a"'],
  ["rerank", '"model":"order","query":"a","documents":["b"]'],
];
/** One of the further paths of a server. */
const MORE = "/v1/moderations";
const MESSAGE_MAX = 1_000;
/** Far more than any of them takes, even on a busy machine. */
const REFUSED_MS_MAX = 10_000;

const bytes = (...values: number[]) => new Uint8Array(values);
const nested = (levels: number) => "[".repeat(levels) + "]".repeat(levels);

/** Bodies that are refused whatever they are sent to. */
function hostileBodies(good: string): [name: string, body: BodyInit][] {
  return [
    ["nothing", ""],
    ["null", "null"],
    ["a list", "[]"],
    ["a text", '"x"'],
    ["half an object", `{${good}`],
    ["two objects", `{${good}}{${good}}`],
    ["garbage behind", `{${good}}x`],
    ["a byte that is no UTF-8", bytes(0x7b, 0xff, 0x7d)],
    ["half a character", encoder.encode(`{${good},"x":"é"}`).slice(0, -3)],
    ["UTF-16", bytes(0xff, 0xfe, 0x7b, 0x00, 0x7d, 0x00)],
    ["a control character in a text", `{${good},"x":"\u0001"}`],
    ["65 levels", `{${good},"x":${nested(64)}}`],
    ["brackets without an end", HOSTILE.depthBomb],
    ["objects without an end", HOSTILE.objectBomb],
    ["100,000 members", `{${good},${keys(100_000)}}`],
    ["100,000 members within", `{${good},"metadata":{${keys(100_000)}}}`],
    ["333,000 lists", `{${good},"x":[${"[],".repeat(333_000)}[]]}`],
    ["a second model", `{${good},"model":"other"}`],
    ["a second model, escaped", `{${good},"mod\\u0065l":"other"}`],
    ["a model that is a number", `{"model":5}`],
    ["a model with a wildcard", `{"model":"x.>"}`],
    ["a model with a command", `{"model":"\\r\\nPUB a 1\\r\\nx"}`],
    ["a long model", `{"model":"${"m".repeat(5_000)}"}`],
  ];
}

for (const [path, good] of PATHS) {
  Deno.test(`API4, ASVS 1.5.3, 2.2.1: hostile bodies of /v1/${path} are refused`, async () => {
    await using rig = await setupWith(
      { backend: { speaks: [...SERVER_ABILITIES], forward_paths: [MORE] } },
      () => jsonResponse("{}"),
    );
    const harmless = await rig.post(path, `{${good}}`);
    await harmless.body?.cancel();
    const { length: heard } = rig.servers[0]?.requests ?? [];
    assert.equal(heard, 1, "without hostility it reaches its server");
    const { length: settled } = rig.settlements();
    for (const [name, body] of hostileBodies(good)) {
      const startedAtMs = performance.now();
      const answer = await fetch(`${rig.gateway.baseUrl()}/${path}`, {
        method: "POST",
        body,
        headers: {
          authorization: `Bearer ${KEY}`,
          "content-type": "application/json",
        },
      });
      const text = await answer.text();
      const { status } = answer;
      assert.ok(status === 400 || status === 404, `${name}: ${status} ${text}`);
      assert.ok(text.length < MESSAGE_MAX, `${name}: it is not repeated`);
      const refusal = JSON.parse(text);
      assert.equal(typeof refusal.error.message, "string", name);
      const isAnthropic = path.startsWith("messages");
      assert.equal(refusal.type === "error", isAnthropic, name);
      assert.ok(performance.now() - startedAtMs < REFUSED_MS_MAX, name);
    }
    assert.equal(rig.servers[0]?.requests.length, heard);
    assert.equal(rig.settlements().length, settled, "nothing is charged");
  });
}
