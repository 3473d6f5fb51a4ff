// Promise: a model server that vanishes while it answers loses no request before the
// first byte: another one answers. Afterwards the answer ends with the error of its
// dialect, never with a normal end.
import assert from "node:assert/strict";
import {
  chatReply,
  jsonResponse,
  lastChunk,
} from "../support/model_servers/model_answers.ts";
import type { Reply } from "../support/model_servers/scripted_server.ts";
import {
  textOf,
  VanishingServer,
} from "../support/model_servers/vanishing_server.ts";
import { until } from "../support/wait_for.ts";
import {
  completion,
  DIALECTS,
  MESSAGE,
  RESPONSE,
  stream,
} from "./event_streams.ts";
import { setupWith } from "./forward_rig.ts";

/** Only the server that vanishes has these; a busy machine must not meet them. */
const DEADLINES = {
  first_token_ms: 100,
  between_tokens_ms: 100,
  total_ms: 600,
};

const CHUNK = (content: string) =>
  `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",` +
  `"choices":[{"index":0,"delta":{"content":"${content}"},"finish_reason":null}]}\n\n`;
const WHOLE =
  '{"id":"m","content":[],"choices":[{"message":{"role":"assistant","content":"a"},' +
  '"index":0,"finish_reason":"stop"}],"usage":{"input_tokens":3,"output_tokens":4,' +
  '"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}';

const [messages, responses, completions] = DIALECTS;
const ask = (path: string, more: string) => ({
  path,
  body: `{"model":"talk","max_tokens":9${more}}`,
});
const CHAT = ',"messages":[{"role":"user","content":"hi"}]';

/** Streams: what begins them, what answers instead, and what ends one that is cut. */
const STREAMS: readonly {
  path: string;
  body: string;
  start: string;
  reply: Reply;
  error: RegExp;
}[] = [
  {
    ...ask("chat/completions", `,"stream":true${CHAT}`),
    start: CHUNK("Hel"),
    reply: chatReply({ words: ["Hello"] }),
    error:
      /\n\ndata: \{"error":\{.*"code":"upstream_(truncated|timeout)"\}\}\n\n$/,
  },
  {
    path: "messages",
    body: messages?.body ?? "",
    start: MESSAGE.start + MESSAGE.text("Hel"),
    reply: () => [...stream(messages?.events ?? ""), lastChunk],
    error: /\n\nevent: error\ndata: \{"type":"error",.*\}\n\n$/,
  },
  {
    path: "responses",
    body: responses?.body ?? "",
    start: RESPONSE.created + RESPONSE.text("Hel"),
    reply: () => [...stream(responses?.events ?? ""), lastChunk],
    error:
      /\n\nevent: response.failed\ndata: \{"type":"response.failed",.*\n\n$/,
  },
  {
    path: "completions",
    body: completions?.body ?? "",
    start: completion("Hel"),
    reply: () => [...stream(completions?.events ?? ""), lastChunk],
    error:
      /\n\ndata: \{"error":\{.*"code":"upstream_(truncated|timeout)"\}\}\n\n$/,
  },
];

/** The model has a server that vanishes, and then another one. */
async function setup(reply: Reply) {
  await using starting = new AsyncDisposableStack();
  const gone = starting.use(await VanishingServer.open());
  const first = { base_url: gone.url, deadlines: DEADLINES };
  const rig = starting.use(await setupWith({ first }, reply));
  const running = starting.move();
  return {
    gone,
    rig,
    /** Asks while the server vanishes that has said no more than this. */
    async ask(path: string, body: string, { start, way }: Vanishing) {
      gone.start = start;
      const before = gone.requests;
      const asking = rig.post(path, body);
      await until(() => gone.requests > before);
      if (way === "reset") gone.reset();
      return await asking;
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

type Vanishing = { start: string; way: string };
const WAYS = ["reset", "silence"];

for (const { path, body, start, reply, error } of STREAMS) {
  Deno.test(`a server that vanishes during a stream of ${path}`, async () => {
    // A rig for each: five failures would open the circuit breaker.
    for (const way of WAYS) {
      await using t = await setup(reply);
      // Before its first byte: not even a head, and a head alone.
      for (const start of ["", textOf(stream())]) {
        const answer = await t.ask(path, body, { start, way });
        const text = await answer.text();
        assert.equal(answer.status, 200, text);
        assert.doesNotMatch(text, /error/, `${way} after '${start}'`);
      }
      t.gone.start = textOf(stream(start));
      const answer = await t.rig.post(path, body);
      let text = "";
      for await (const piece of answer.body ?? []) {
        text += new TextDecoder().decode(piece);
        if (way === "reset" && text.includes("Hel")) t.gone.reset();
      }
      assert.match(text, error, way);
      assert.doesNotMatch(text, /\[DONE\]|message_stop|response.completed/);
      const kinds = t.rig.settlements().map((each) => each?.kind);
      assert.deepEqual(kinds, ["complete", "complete", "failed"]);
    }
  });
}

const WHOLE_REQUESTS = [
  ask("chat/completions", CHAT),
  ask("messages", CHAT),
];

for (const { path, body } of WHOLE_REQUESTS) {
  Deno.test(`a server that vanishes during a whole answer of ${path}`, async () => {
    await using t = await setup(() => jsonResponse(WHOLE));
    const half = textOf(jsonResponse(WHOLE)).slice(0, -40);
    for (const way of WAYS) {
      for (const start of ["", half]) {
        const answer = await t.ask(path, body, { start, way });
        const { error } = await answer.json();
        // A server that says nothing at all may still compute: only the time of the
        // whole answer ends that, and there is none left for another server.
        const isTooLate = way === "silence" && start === "";
        assert.equal(answer.status, isTooLate ? 504 : 200, `${way} '${start}'`);
        assert.equal(error === undefined, !isTooLate);
      }
    }
    assert.equal(t.rig.settlements().length, 4);
  });
}
