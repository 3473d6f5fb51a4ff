// Promise: the example of docs/kept_answers.md, as it stands, reads an answer whole
// over a connection that is cut again and again, and runs it once.
import assert from "node:assert/strict";
import { until } from "../../support/wait_for.ts";
import { startTcpProxy } from "../../support/servers/tcp_proxy.ts";
import { startKeeping } from "./kept_rig.ts";

const PAGE = new URL("../../../docs/kept_answers.md", import.meta.url);
const CUTS = 4;

/** What the example is called with, and gives. */
type Resume = (
  url: string,
  key: string,
  body: object,
) => AsyncGenerator<{ choices?: { delta?: { content?: string } }[] }>;

/** The function of the page, as its reader would paste it into a file. */
async function readExample(): Promise<Resume> {
  const page = await Deno.readTextFile(PAGE);
  const code = /^```ts\n(async function\* resume[^]*?)^```$/m.exec(page)?.[1];
  const source = `export ${code ?? assert.fail("no example")}`;
  const { resume } = await import(
    `data:application/typescript,${encodeURIComponent(source)}`
  );
  return resume;
}

Deno.test("the example in TypeScript reads a stream whole that is cut again and again", async () => {
  await using gateway = await startKeeping();
  const { port } = new URL(gateway.baseUrl());
  await using proxy = startTcpProxy(Number(port));
  const key = await gateway.addKey();
  const resume = await readExample();
  const body = {
    model: "neutral-3.7-plus",
    messages: [{ role: "user", content: "hello" }],
  };
  let text = "";
  const url = `http://127.0.0.1:${proxy.port}`;
  const reading = (async () => {
    for await (const { choices } of resume(url, key.value, body)) {
      text += choices?.[0]?.delta?.content ?? "";
    }
  })();
  const call = await until(() => gateway.backend.calls[0]);
  // Before the head of the response the client knows no id.
  proxy.cut();
  for (let cut = 0; cut < CUTS; cut += 1) {
    call.say(`${cut} `);
    await until(() => text.includes(`${cut} `));
    proxy.cut();
  }
  call.end(CUTS);
  await reading;
  assert.equal(text, "0 1 2 3 ");
  assert.equal(gateway.backend.calls.length, 1);
});
