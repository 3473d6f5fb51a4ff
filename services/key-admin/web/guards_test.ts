import assert from "node:assert/strict";
import { Hono } from "hono";
import { type ConsoleEnv, Refused } from "./context.ts";
import { formGuard } from "./guards.ts";

Deno.test("formGuard() waits no longer than its time for a form that stops coming", async () => {
  const app = new Hono<ConsoleEnv>();
  app.use(formGuard(20));
  app.post("/", (c) => c.text("read"));
  app.onError((error, c) => {
    if (!(error instanceof Refused)) throw error;
    return c.text(error.message, error.status);
  });
  const send = (body: BodyInit) =>
    app.request("/", {
      method: "POST",
      headers: { "content-type": "application/x-www-form-urlencoded" },
      body,
    });
  let isCancelled = false;
  const endless = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(new Uint8Array([0x61])),
    cancel: () => void (isCancelled = true),
  });
  const answer = await send(endless);
  assert.equal(answer.status, 408);
  assert.equal(await answer.text(), "The form did not arrive in time");
  assert.equal(isCancelled, true);
  assert.equal((await send("a=b")).status, 200);
});
