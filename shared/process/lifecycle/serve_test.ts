/** How a server stops. */
import assert from "node:assert/strict";
import { serve } from "./serve.ts";

const options = {
  hostname: "127.0.0.1",
  port: 0,
  onError: () => new Response(null, { status: 500 }),
};

Deno.test("stop() lets a running response end", async () => {
  const { promise: arrived, resolve } = Promise.withResolvers<void>();
  const answered = Promise.withResolvers<Response>();
  const handler = () => (resolve(), answered.promise);
  const server = serve({ ...options, handler });
  const response = fetch(`http://127.0.0.1:${server.port}/`);
  await arrived;
  const stopped = server.stop({ graceMs: 5_000, abortMs: 100 });
  answered.resolve(new Response("whole"));
  assert.equal(await (await response).text(), "whole");
  await stopped;
  assert.equal(server.stopping.aborted, false);
});

for (const isStubborn of [false, true]) {
  const does = isStubborn
    ? "does not wait for a stream that ignores"
    : "waits until a stream that hears of the stop has ended";
  Deno.test(`stop() ${does} the end of the grace time`, async () => {
    const encoder = new TextEncoder();
    const streaming = (controller: ReadableStreamDefaultController) => {
      controller.enqueue(encoder.encode("begin "));
      if (isStubborn) return;
      server.stopping.addEventListener("abort", () => {
        controller.enqueue(encoder.encode("the end"));
        controller.close();
      });
    };
    const server = serve({
      ...options,
      handler: () => new Response(new ReadableStream({ start: streaming })),
    });
    const response = await fetch(`http://127.0.0.1:${server.port}/`);
    const text = isStubborn ? null : response.text();
    await server.stop({ graceMs: 20, abortMs: isStubborn ? 10 : 5_000 });
    assert.equal(server.stopping.aborted, true);
    if (isStubborn) await response.body?.cancel();
    else assert.equal(await text, "begin the end");
  });
}
