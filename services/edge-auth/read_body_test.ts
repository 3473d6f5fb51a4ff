import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/clock";
import { createDeadlines } from "@gateway/shared/deadlines";
import { BODY_PIECES } from "@gateway/shared/limits";
import type { BodyOutcome } from "./body_outcome.ts";
import { readBody } from "./read_body.ts";
import type { ReadBodyOptions } from "./read_pieces.ts";

const BYTES_MAX = 200_000;
const NEVER_MS = 600_000;
const SOON_MS = 150;
const PATIENCE_MS = 5_000;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** A server on a free port that reads one body at a time and a raw connection to it. */
interface Rig extends AsyncDisposable {
  /** Sends text or bytes as they are. */
  send(data: string | Uint8Array): Promise<void>;
  /** Sends a POST head with these header lines. */
  head(...lines: string[]): Promise<void>;
  /** Resolves when the server has begun to read a body. */
  started(): Promise<void>;
  /** What `readBody` made of the next request. */
  outcome(): Promise<BodyOutcome>;
  /** What the server sent until now, once it contains `text`. */
  answered(text: string): Promise<string>;
  /** Resolves when the server has closed the connection. */
  closed(): Promise<void>;
  leave(): void;
  closeWrite(): Promise<void>;
}

async function createRig(
  options: Partial<ReadBodyOptions> = {},
): Promise<Rig> {
  const deadlines = createDeadlines(monotonicNow);
  const outcomes: BodyOutcome[] = [];
  const errors: unknown[] = [];
  let startedCount = 0;
  const server = Deno.serve({
    port: 0,
    hostname: "127.0.0.1",
    onListen() {},
    onError(error) {
      errors.push(error);
      return new Response("fault", { status: 500 });
    },
  }, async (request) => {
    const reading = readBody(request, {
      bytesMax: BYTES_MAX,
      progressMs: NEVER_MS,
      totalMs: NEVER_MS,
      deadlines,
      now: monotonicNow,
      ...options,
    });
    startedCount++;
    const outcome = await reading;
    outcomes.push(outcome);
    if (outcome.type === "gone") return new Response("gone", { status: 400 });
    if (outcome.type === "body") return new Response("whole");
    const headers: HeadersInit = outcome.close ? { connection: "close" } : {};
    return new Response("refused", { status: outcome.error.status, headers });
  });
  const connection = await Deno.connect({
    hostname: "127.0.0.1",
    port: server.addr.port,
  });
  let received = "";
  let isOpen = true;
  let hasLeft = false;
  const receiving = (async () => {
    const buffer = new Uint8Array(65_536);
    for (;;) {
      const count = await connection.read(buffer);
      if (count === null) return;
      received += decoder.decode(buffer.subarray(0, count));
    }
  })().catch((error) => {
    // Leaving interrupts the read.
    if (!hasLeft) errors.push(error);
  }).finally(() => isOpen = false);

  const until = async <T>(what: string, found: () => T | undefined) => {
    const giveUpAt = performance.now() + PATIENCE_MS;
    for (;;) {
      const value = found();
      if (value !== undefined) return value;
      assert.deepEqual(errors, []);
      assert.ok(performance.now() < giveUpAt, `${what}; got ${received}`);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  };

  const send = async (data: string | Uint8Array) => {
    let rest = typeof data === "string" ? encoder.encode(data) : data;
    while (rest.length > 0) rest = rest.subarray(await connection.write(rest));
  };
  const leave = () => {
    if (hasLeft) return;
    hasLeft = true;
    connection.close();
  };

  return {
    send,
    head: (...lines) =>
      send(`${["POST / HTTP/1.1", "Host: a", ...lines, "", ""].join("\r\n")}`),
    started: async () => {
      await until("a start", () => startedCount > 0 ? true : undefined);
    },
    outcome: () => until("an outcome", () => outcomes.shift()),
    answered: (text) =>
      until(text, () => received.includes(text) ? received : undefined),
    closed: async () => {
      await until("the end", () => isOpen ? undefined : true);
    },
    leave,
    closeWrite: () => connection.closeWrite(),
    async [Symbol.asyncDispose]() {
      // What was left of a refused body is given up later.
      await until("rest", () => deadlines.size === 0 ? true : undefined);
      leave();
      await receiving;
      await server.shutdown();
      deadlines.close();
      assert.deepEqual(errors, []);
    },
  };
}

/** Asserts that the outcome is a refusal of this status. */
function assertRefused(
  outcome: BodyOutcome,
  status: number,
  isClosing: boolean,
): void {
  assert.ok(outcome.type === "refused", outcome.type);
  assert.equal(outcome.error.status, status);
  assert.equal(outcome.close, isClosing);
}

function textOf(outcome: BodyOutcome): string {
  assert.ok(outcome.type === "body", outcome.type);
  return decoder.decode(outcome.bytes);
}

const JSON_TYPE = "Content-Type: application/json";
const CHUNKED = "Transfer-Encoding: chunked";
const chunk = (text: string) => `${text.length.toString(16)}\r\n${text}\r\n`;
const LAST_CHUNK = "0\r\n\r\n";

Deno.test("readBody() reads whole bodies", async (test) => {
  const large = "x".repeat(BYTES_MAX);
  const rows: [name: string, head: string[], sent: string, body: string][] = [
    ["with a length", [JSON_TYPE, "Content-Length: 2"], "{}", "{}"],
    ["without a type", ["Content-Length: 2"], "{}", "{}"],
    ["without a length", [JSON_TYPE], "", ""],
    ["of no bytes", ["Content-Length: 0"], "", ""],
    [
      "of two equal lengths",
      ["Content-Length: 2", "Content-Length: 2"],
      "{}",
      "{}",
    ],
    ["in one chunk", [CHUNKED], chunk("{}") + LAST_CHUNK, "{}"],
    ["in two chunks", [CHUNKED], chunk("{") + chunk("}") + LAST_CHUNK, "{}"],
    ["in no chunk", [CHUNKED], LAST_CHUNK, ""],
    [
      "of one read at most",
      ["Content-Length: 65536"],
      "x".repeat(65_536),
      "x".repeat(65_536),
    ],
    [
      "of more than one read",
      ["Content-Length: 65537"],
      "x".repeat(65_537),
      "x".repeat(65_537),
    ],
    ["of the limit", [`Content-Length: ${BYTES_MAX}`], large, large],
    ["of the limit in chunks", [CHUNKED], chunk(large) + LAST_CHUNK, large],
  ];
  for (const [name, head, sent, body] of rows) {
    await test.step(name, async () => {
      await using rig = await createRig();
      await rig.head(...head);
      await rig.send(sent);
      assert.equal(textOf(await rig.outcome()), body);
      await rig.answered("whole");
    });
  }
});

Deno.test("readBody() leaves the connection fit for the next request", async () => {
  await using rig = await createRig();
  for (const text of ["1", "22", "333"]) {
    await rig.head(`Content-Length: ${text.length}`);
    await rig.send(text);
    assert.equal(textOf(await rig.outcome()), text);
    await rig.head(CHUNKED);
    await rig.send(chunk(text) + LAST_CHUNK);
    assert.equal(textOf(await rig.outcome()), text);
  }
});

Deno.test("readBody() answers Expect: 100-continue and reads on", async () => {
  await using rig = await createRig();
  await rig.head("Content-Length: 5", "Expect: 100-continue");
  await rig.answered("100 Continue");
  await rig.send("hello");
  assert.equal(textOf(await rig.outcome()), "hello");
});

Deno.test("readBody() takes only the declared bytes", async () => {
  await using rig = await createRig();
  await rig.head("Content-Length: 5");
  await rig.send("helloEXTRA");
  assert.equal(textOf(await rig.outcome()), "hello");
});

Deno.test("readBody() refuses by type and encoding with 415", async (test) => {
  const rows: [header: string, isAccepted: boolean][] = [
    ["Content-Type: application/json", true],
    ["Content-Type: Application/JSON; charset=utf-8", true],
    ["Content-Type: application/json;charset=UTF-8", true],
    ["Content-Type: application/vnd.api+json", true],
    ["Content-Type: ", true],
    ["Content-Type: text/plain", false],
    ["Content-Type: text/plain; x=application/json", false],
    ["Content-Type: application/x-www-form-urlencoded", false],
    ["Content-Type: multipart/form-data; boundary=x", false],
    ["Content-Type: application/jsonp", false],
    ["Content-Type: application/xml", false],
    ["Content-Type: +json", false],
    ["Content-Type: json", false],
    ["Content-Encoding: identity", true],
    ["Content-Encoding: Identity", true],
    ["Content-Encoding: ", true],
    ["Content-Encoding: gzip", false],
    ["Content-Encoding: br", false],
    ["Content-Encoding: identity, gzip", false],
  ];
  for (const [header, isAccepted] of rows) {
    await test.step(header, async () => {
      await using rig = await createRig();
      await rig.head(header, "Content-Length: 2");
      await rig.send("{}");
      const outcome = await rig.outcome();
      if (isAccepted) assert.equal(textOf(outcome), "{}");
      else assertRefused(outcome, 415, false);
    });
  }
});

Deno.test("readBody() refuses a declared length over the limit before reading", async () => {
  await using rig = await createRig();
  await rig.head(`Content-Length: ${BYTES_MAX + 1}`);
  const outcome = await rig.outcome();
  assertRefused(outcome, 413, true);
  assert.ok(outcome.type === "refused");
  assert.equal(outcome.error.code, "request_too_large");
  assert.equal(
    outcome.error.message,
    "The request body is too large. The limit is 200000 bytes.",
  );
  await rig.answered("413 Payload Too Large");
});

Deno.test("readBody() refuses a length of 20 digits", async () => {
  await using rig = await createRig();
  await rig.head("Content-Length: 10000000000000000000");
  assertRefused(await rig.outcome(), 413, true);
});

Deno.test("readBody() refuses chunks over the limit while they come", async () => {
  await using rig = await createRig();
  await rig.head(CHUNKED);
  await rig.send(chunk("x".repeat(BYTES_MAX)) + chunk("y"));
  assertRefused(await rig.outcome(), 413, true);
  await rig.answered("413 Payload Too Large");
});

/** The most pieces of a byte that a body may have. */
const PIECES_MAX = Math.floor(
  BODY_PIECES.free / (1 - 1 / BODY_PIECES.bytesMin),
);

Deno.test("readBody() takes a body in many pieces, and refuses it in too many", async (test) => {
  for (const pieces of [PIECES_MAX, PIECES_MAX + 1]) {
    await test.step(`${pieces} of a byte`, async () => {
      await using rig = await createRig();
      await rig.head(CHUNKED);
      await rig.started();
      await rig.send(chunk("x").repeat(pieces) + LAST_CHUNK);
      const outcome = await rig.outcome();
      if (pieces === PIECES_MAX) {
        assert.equal(textOf(outcome), "x".repeat(pieces));
        return;
      }
      assertRefused(outcome, 400, true);
      assert.ok(outcome.type === "refused");
      assert.equal(outcome.costBytes, pieces * BODY_PIECES.bytesMin);
    });
  }
  await test.step("of more bytes: in more pieces", async () => {
    await using rig = await createRig();
    const pieces = PIECES_MAX + 300;
    const text = "x".repeat(Math.floor(BYTES_MAX / pieces));
    await rig.head(CHUNKED);
    await rig.started();
    await rig.send(chunk(text).repeat(pieces) + LAST_CHUNK);
    assert.equal(textOf(await rig.outcome()), text.repeat(pieces));
  });
});

/** Each piece comes in 64 KiB: half of what all of them are together. */
const GROWTH_BYTES_MAX = PIECES_MAX * 32 * 1024;

Deno.test("readBody() lets others have their turn between pieces, and keeps none", async () => {
  await using rig = await createRig();
  await rig.head(CHUNKED);
  await rig.started();
  const before = Deno.memoryUsage().external;
  let turns = 0;
  let peak = before;
  const counting = setInterval(() => {
    turns += 1;
    peak = Math.max(peak, Deno.memoryUsage().external);
  }, 0);
  await rig.send(chunk("x").repeat(PIECES_MAX) + LAST_CHUNK);
  turns = 0;
  await rig.outcome();
  clearInterval(counting);
  assert.ok(turns >= PIECES_MAX / BODY_PIECES.perTurn / 2, `${turns} turns`);
  assert.ok(peak - before < GROWTH_BYTES_MAX, `${peak - before} bytes more`);
});

Deno.test("readBody() gives up on a body that stops coming", async (test) => {
  const rows: [name: string, head: string, sent: string][] = [
    ["small", "Content-Length: 10", "ab"],
    ["nothing at all", "Content-Length: 10", ""],
    ["large", "Content-Length: 100000", "ab"],
    ["chunked", CHUNKED, chunk("ab")],
    ["half a chunk", CHUNKED, "a\r\nab"],
    ["no chunk", CHUNKED, ""],
  ];
  for (const [name, head, sent] of rows) {
    await test.step(name, async () => {
      await using rig = await createRig({ progressMs: SOON_MS });
      const start = performance.now();
      await rig.head(head);
      await rig.send(sent);
      const outcome = await rig.outcome();
      const took = performance.now() - start;
      assertRefused(outcome, 408, true);
      assert.ok(outcome.type === "refused");
      assert.equal(outcome.error.code, "request_timeout");
      assert.ok(took >= SOON_MS - 1, `after ${took} ms`);
      await rig.answered("408 Request Timeout");
    });
  }
});

/** Sends one byte every 20 ms until the answer is there. */
async function trickle(rig: Rig, byte: string, isOver: () => boolean) {
  while (!isOver()) {
    await rig.send(byte);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

Deno.test("readBody() gives up on a body that trickles", async (test) => {
  for (
    const [name, head, byte] of [
      ["by length", "Content-Length: 100000", "x"],
      ["chunked", CHUNKED, chunk("x")],
    ] as const
  ) {
    await test.step(name, async () => {
      await using rig = await createRig({ totalMs: SOON_MS });
      const start = performance.now();
      await rig.head(head);
      let isOver = false;
      const outcome = rig.outcome().finally(() => isOver = true);
      await trickle(rig, byte, () => isOver);
      assertRefused(await outcome, 408, true);
      const took = performance.now() - start;
      assert.ok(took >= SOON_MS - 1, `after ${took} ms`);
    });
  }
});

Deno.test("readBody() waits for a slow body that makes progress", async () => {
  const progressMs = 500;
  await using rig = await createRig({ progressMs });
  await rig.head(CHUNKED);
  // Longer in all than any one silence may last.
  for (let sent = 0; sent < 5; sent++) {
    await rig.send(chunk("x"));
    await new Promise((resolve) => setTimeout(resolve, progressMs / 4));
  }
  await rig.send(LAST_CHUNK);
  assert.equal(textOf(await rig.outcome()), "xxxxx");
});

Deno.test("readBody() tells when the client has left", async (test) => {
  const rows: [name: string, head: string, sent: string][] = [
    ["small", "Content-Length: 10", "ab"],
    ["large", "Content-Length: 100000", "ab"],
    ["chunked", CHUNKED, chunk("ab")],
    ["before any byte", CHUNKED, ""],
  ];
  for (const [name, head, sent] of rows) {
    await test.step(name, async () => {
      await using rig = await createRig();
      await rig.head(head);
      await rig.send(sent);
      await rig.started();
      rig.leave();
      assert.deepEqual(await rig.outcome(), { type: "gone" });
    });
  }
});

Deno.test("readBody() tells when the client has only stopped sending", async () => {
  await using rig = await createRig();
  await rig.head("Content-Length: 10");
  await rig.send("ab");
  await rig.closeWrite();
  assert.deepEqual(await rig.outcome(), { type: "gone" });
  await rig.closed();
});

Deno.test("readBody() refuses broken chunks with 400", async (test) => {
  for (const broken of ["zz\r\nfoo\r\n", "-1\r\n", "ffffffffffffffffff\r\n"]) {
    await test.step(broken.trim(), async () => {
      await using rig = await createRig();
      await rig.head(CHUNKED);
      await rig.send(chunk("hello"));
      // Had they come with the head, the server would refuse them by itself.
      await rig.started();
      await rig.send(broken);
      const outcome = await rig.outcome();
      assertRefused(outcome, 400, true);
      assert.ok(outcome.type === "refused");
      assert.equal(outcome.error.code, "invalid_request");
      await rig.closed();
    });
  }
});

Deno.test("readBody() does not hide that a body was read before", async (test) => {
  for (const length of ["2", "100000"]) {
    await test.step(length, async () => {
      const deadlines = createDeadlines(monotonicNow);
      const request = new Request("http://a/", {
        method: "POST",
        body: "{}",
        headers: { "content-length": length, "content-type": "" },
      });
      await request.bytes();
      await assert.rejects(
        readBody(request, {
          bytesMax: BYTES_MAX,
          progressMs: NEVER_MS,
          totalMs: NEVER_MS,
          deadlines,
          now: monotonicNow,
        }),
        TypeError,
      );
      deadlines.close();
    });
  }
});
