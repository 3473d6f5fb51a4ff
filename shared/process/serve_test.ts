import assert from "node:assert/strict";
import { serve } from "./serve.ts";

const options = {
  hostname: "127.0.0.1",
  port: 0,
  onError: () => new Response(null, { status: 500 }),
};

Deno.test("stop() lets a running response end", async () => {
  const asked = Promise.withResolvers<void>();
  const answered = Promise.withResolvers<void>();
  const server = serve({
    ...options,
    handler: async () => {
      asked.resolve();
      await answered.promise;
      return new Response("whole");
    },
  });
  const response = fetch(`http://127.0.0.1:${server.port}/`);
  await asked.promise;
  const stopped = server.stop({ graceMs: 5_000, abortMs: 100 });
  answered.resolve();
  assert.equal(await (await response).text(), "whole");
  await stopped;
  assert.equal(server.stopping.aborted, false);
});

Deno.test("stop() tells streams when the grace time is over and waits until they have ended", async () => {
  const encoder = new TextEncoder();
  const server = serve({
    ...options,
    handler: () =>
      new Response(
        new ReadableStream<Uint8Array>({
          start(controller) {
            controller.enqueue(encoder.encode("begin "));
            server.stopping.addEventListener("abort", () => {
              controller.enqueue(encoder.encode("the end"));
              controller.close();
            });
          },
        }),
      ),
  });
  const response = await fetch(`http://127.0.0.1:${server.port}/`);
  const text = response.text();
  await server.stop({ graceMs: 20, abortMs: 5_000 });
  assert.equal(await text, "begin the end");
});

Deno.test("stop() does not wait for a stream that ignores the end of the grace time", async () => {
  const server = serve({
    ...options,
    handler: () =>
      new Response(
        new ReadableStream<Uint8Array>({
          start(controller) {
            controller.enqueue(new Uint8Array(1));
          },
        }),
      ),
  });
  const response = await fetch(`http://127.0.0.1:${server.port}/`);
  await server.stop({ graceMs: 10, abortMs: 10 });
  assert.equal(server.stopping.aborted, true);
  await response.body?.cancel();
});
