/**
 * Guarantee: several edges and workers are one service. Every answer is complete
 * and belongs to its request, and a worker that dies or is replaced under load
 * costs nobody an unseen request.
 */
import assert from "node:assert/strict";
import { type Cluster, startCluster } from "../support/cluster.ts";
import { waitFor } from "../support/wait_for.ts";

const REQUESTS = 200;

interface Answer {
  status: number;
  /** The content, put together again if it was streamed. */
  content: string;
  isComplete: boolean;
  /** `error.code` of an error frame or body. */
  errorCode: string | null;
}

/** A request of a kind that depends on its number, with an answer of its own. */
function bodyOf(number: number): object {
  return {
    model: "neutral-3.7-plus",
    messages: [{
      role: "user",
      content: `Question ${number}: tell me something.`,
    }],
    seed: number,
    max_tokens: 5 + number % 60,
    stream: number % 2 === 0,
    ...(number % 5 === 0 ? { n: 2 } : {}),
    ...(number % 7 === 0 ? { enable_thinking: true } : {}),
  };
}

async function ask(
  cluster: Cluster,
  body: object,
  edge = 0,
  onBegun = () => {},
): Promise<Answer> {
  const response = await fetch(`${cluster.baseUrl(edge)}/chat/completions`, {
    method: "POST",
    headers: {
      authorization: `Bearer ${cluster.state.api_key}`,
      "content-type": "application/json",
    },
    body: JSON.stringify(body),
  });
  // Its head comes with the first words of a stream.
  onBegun();
  const text = await response.text();
  const type = response.headers.get("content-type") ?? "";
  return type.startsWith("text/event-stream")
    ? streamAnswer(response.status, text)
    : wholeAnswer(response.status, text);
}

function wholeAnswer(status: number, text: string): Answer {
  const body = JSON.parse(text);
  const choices: { message: { content: string } }[] = body.choices ?? [];
  return {
    status,
    content: choices.map(({ message }) => message.content).join("|"),
    isComplete: status === 200,
    errorCode: body.error?.code ?? null,
  };
}

function streamAnswer(status: number, text: string): Answer {
  const data = text.split("\n\n").filter((event) => event.startsWith("data: "))
    .map((event) => event.slice("data: ".length));
  const contents: string[] = [];
  let errorCode: string | null = null;
  for (const event of data) {
    if (event === "[DONE]") continue;
    const chunk = JSON.parse(event);
    errorCode = chunk.error?.code ?? errorCode;
    for (const { index, delta } of chunk.choices ?? []) {
      contents[index] = (contents[index] ?? "") + (delta.content ?? "");
    }
  }
  return {
    status,
    content: contents.join("|"),
    isComplete: data.at(-1) === "[DONE]",
    errorCode,
  };
}

/** Whether this many workers say that they are ready. */
async function areReady(cluster: Cluster, workers: number): Promise<boolean> {
  const urls = cluster.state.ops_urls["chat-worker"] ?? [];
  const ready = await Promise.all(urls.map(async (url) => {
    try {
      const response = await fetch(`${url}/readyz`);
      await response.body?.cancel();
      return response.status === 200;
    } catch {
      return false; // Its process is gone, or not there yet.
    }
  }));
  return ready.filter(Boolean).length === workers;
}

Deno.test("a cluster of 2 edges and 3 workers", async (t) => {
  await using cluster = await startCluster({ edges: 2, workers: 3 });

  await t.step(
    "200 mixed requests at once get the answers they get alone",
    async () => {
      const alone: Answer[] = [];
      for (let number = 0; number < REQUESTS; number += 1) {
        alone.push(await ask(cluster, bodyOf(number)));
      }
      const together = await Promise.all(
        alone.map((_, number) => ask(cluster, bodyOf(number), number % 2)),
      );
      for (const [number, answer] of together.entries()) {
        assert.equal(
          answer.isComplete,
          true,
          `request ${number}: ${answer.errorCode}`,
        );
        assert.deepEqual(answer, alone[number], `request ${number}`);
      }
      // Short answers may agree by chance; most must be answers to different requests.
      const different = new Set(together.map(({ content }) => content)).size;
      assert.ok(different > REQUESTS / 2, `${different} different answers`);
    },
  );

  await t.step(
    "a worker killed under load costs only what was half said",
    async () => {
      const slow = (number: number) => ({
        model: "neutral-3.7-plus",
        messages: [{
          role: "user",
          content:
            "[simulator: 240 tokens] [simulator: 40 tokens per second] " +
            "[simulator: first token 300 ms]",
        }],
        stream: number % 2 === 0,
      });
      const [victim] = cluster.state.pids["chat-worker"] ?? [];
      assert.ok(victim);
      let begun = 0;
      const answers = Array.from({ length: 60 }, (_, number) => {
        const body = slow(number);
        return ask(cluster, body, number % 2, () => {
          if (body.stream) begun += 1;
        });
      });
      // Every stream has begun and none has ended: the victim has its share.
      await waitFor(() => begun === answers.length / 2, {
        what: "all streams to begin",
      });
      Deno.kill(victim, "SIGKILL");
      let cut = 0;
      for (const [number, answered] of answers.entries()) {
        const answer = await answered;
        if (answer.isComplete) continue;
        cut += 1;
        assert.equal(
          number % 2,
          0,
          "an answer that was not streamed is repeated",
        );
        assert.equal(answer.errorCode, "worker_lost");
      }
      assert.ok(cut > 0, "the victim ran nothing");
    },
  );

  await t.step(
    "every worker replaced under load: no failed request",
    async () => {
      await waitFor(async () => {
        const { pids } = await cluster.refresh();
        return pids["chat-worker"]?.length === 3 && await areReady(cluster, 3);
      }, { what: "three workers again", timeoutMs: 15_000, intervalMs: 100 });
      let isOver = false;
      const failures: Answer[] = [];
      let served = 0;
      const load = Array.from({ length: 20 }, async (_, client) => {
        for (let number = client; !isOver; number += 20) {
          const answer = await ask(cluster, bodyOf(number), number % 2);
          if (answer.isComplete) served += 1;
          else failures.push(answer);
        }
      });
      for (const old of cluster.state.pids["chat-worker"] ?? []) {
        Deno.kill(old, "SIGTERM");
        await waitFor(async () => {
          const { pids } = await cluster.refresh();
          const workers = pids["chat-worker"] ?? [];
          return workers.length === 3 && !workers.includes(old) &&
            await areReady(cluster, 3);
        }, {
          what: `worker ${old} to be replaced`,
          timeoutMs: 20_000,
          intervalMs: 100,
        });
      }
      isOver = true;
      await Promise.all(load);
      assert.deepEqual(failures, []);
      assert.ok(served > 100, `only ${served} requests served`);
    },
  );

  await t.step("no log holds a key", async () => {
    const logs = await cluster.logs();
    assert.ok(!logs.includes(cluster.state.api_key.slice(5)));
    assert.match(logs, /"event":"chat"/);
  });
});
