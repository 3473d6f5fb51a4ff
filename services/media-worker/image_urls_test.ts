// Pictures that a model server names by their URL: the worker fetches them, and nothing
// else.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import type { BackendConfig } from "@gateway/shared/models/catalog";
import type {
  Step,
  WholeRequest,
} from "../../tests/support/model_servers/scripted_server.ts";
import {
  CLOSE,
  head,
  jsonResponse,
  lastChunk,
  STALL,
  typed,
} from "../../tests/support/model_servers/model_answers.ts";
import {
  API_KEY,
  assertFault,
  eventsIn,
  IMAGE,
  SSE,
  startServer,
} from "./server_fixture.ts";

const PNG = Buffer.from([0x89, 0x50, 0x4e, 0x47, 1, 2, 3]);
const b64_json = PNG.toBase64();

/** Answers with a URL, and with what is there. */
const pointing = (url: (port: number) => string, there: Step[]) => {
  const paths: string[] = [];
  const reply = ({ method, path, headers }: WholeRequest) => {
    paths.push(path);
    if (method === "GET") return there;
    const port = Number(headers.get("host")?.split(":")[1]);
    return jsonResponse({ created: 5, data: [{ url: url(port) }] });
  };
  return { reply, paths };
};
const there = [
  head("200 OK\r\ncontent-type: image/png\r\ncontent-length: 7", PNG),
];

Deno.test("a picture at a URL of the server is fetched with the server's key", async () => {
  const rows: [url: (port: number) => string, path: string][] = [
    [(port) => `http://127.0.0.1:${port}/f/a.png?x=1`, "/f/a.png?x=1"],
    [() => "/v1/images/a/content", "/v1/images/a/content"],
    [() => "images/a", "/v1/images/a"],
  ];
  for (const [url, path] of rows) {
    const { reply, paths } = pointing(url, there);
    await using r = startServer(reply);
    const { error, text } = await r.run(IMAGE);
    assert.equal(error, null);
    assert.deepEqual(JSON.parse(text), { created: 5, data: [{ b64_json }] });
    assert.equal(paths[1], path);
    const { headers } = await r.peer.request(2);
    assert.equal(headers.get("authorization"), `Bearer ${API_KEY}`);
    const [event] = eventsIn(
      (await r.run({ ...IMAGE, ...SSE })).text,
    );
    assert.equal(event?.b64_json, b64_json);
    assert.equal(r.peer.connections, 1, "that of the answer is used again");
  }
});

/** The guarantee: a model server cannot make the worker call another server. */
const strangers: [name: string, url: (port: number) => string][] = [
  ["another host", (port) => `http://localhost:${port}/a`],
  ["another port", () => "http://127.0.0.1:9/a"],
  ["another protocol", (port) => `https://127.0.0.1:${port}/a`],
  ["another host without protocol", (port) => `//[::1]:${port}/a`],
  ["a file", () => "file:///etc/passwd"],
  ["nothing that is a URL", () => "http://["],
];

for (const [name, url] of strangers) {
  Deno.test(`API7: a picture at ${name} is not fetched`, async () => {
    const { reply, paths } = pointing(url, there);
    await using r = startServer(reply);
    const { error, body } = await r.run(IMAGE);
    await assertFault(error, "unsupported", r);
    assert.equal(body.length, 0);
    assert.equal(paths.length, 1);
  });
}

interface Fetched {
  name: string;
  /** What is at the URL. */
  reply: Step[];
  fault: string;
  deadlines?: Partial<BackendConfig["deadlines"]>;
}

const fetched: Fetched[] = [
  {
    name: "a redirect",
    reply: [
      head("302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0"),
    ],
    fault: "redirect",
  },
  {
    name: "a refusal",
    reply: jsonResponse({ detail: "No" }, { status: 400 }),
    fault: "unsupported",
  },
  {
    name: "a page",
    reply: [typed("text/html"), lastChunk],
    fault: "unsupported",
  },
  {
    name: "nothing",
    reply: [head("200 OK\r\ncontent-length: 0")],
    fault: "truncated",
  },
  {
    name: "a part",
    reply: [head("200 OK\r\ncontent-length: 9", PNG), CLOSE],
    fault: "truncated",
  },
  {
    name: "no answer",
    reply: [STALL],
    fault: "deadline",
    deadlines: { total_ms: 100 },
  },
  {
    name: "a stall",
    reply: [head("200 OK\r\ncontent-length: 9", PNG), STALL],
    fault: "timeout",
    deadlines: {
      between_tokens_ms: 50,
    },
  },
];

for (const { name, reply, fault, deadlines = {} } of fetched) {
  Deno.test(`API7, API10: pictures fail with ${fault} for ${name} at the URL of a picture`, async () => {
    const pointer = pointing(() => "/a", reply);
    await using r = startServer(pointer.reply, { deadlines });
    const { error, body } = await r.run(IMAGE);
    await assertFault(error, fault, r);
    assert.equal(body.length, 0);
    assert.equal(r.memory.bytes, 0);
  });
}

Deno.test("a client that asks for URLs gets that of another server, and data: URLs of this one", async () => {
  const elsewhere = "https://images.example.org/a.png?sig=1";
  const { reply, paths } = pointing(() => elsewhere, there);
  await using other = startServer(reply);
  const { error, text } = await other.run({ ...IMAGE, format: "url" });
  assert.equal(error, null);
  assert.deepEqual(JSON.parse(text).data, [{ url: elsewhere }]);
  assert.equal(paths.length, 1, "it was not fetched");
  const own = pointing(() => "/a", there);
  await using server = startServer(own.reply);
  const { text: inline } = await server.run({ ...IMAGE, format: "url" });
  const url = `data:image/png;base64,${PNG.toBase64()}`;
  assert.deepEqual(JSON.parse(inline).data, [{ url }]);
});
