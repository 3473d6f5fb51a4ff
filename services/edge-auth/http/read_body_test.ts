/** Bodies over a raw connection to the real server. */
import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import { createDeadlines } from "@gateway/shared/process/deadlines";
import { BODY_PIECES } from "@gateway/shared/limits";
import { ApiError } from "@gateway/shared/openai/error";
import { createBodyBudget } from "./body_budget.ts";
import { readBody, type ReadBodyOptions } from "./read_body.ts";
import { startServer } from "./server.ts";

const BYTES_MAX = 200_000;
const NEVER_MS = 600_000;
const SOON_MS = 150;
const PATIENCE_MS = 5_000;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** The text of a body, "gone", or why it was refused. */
type Outcome = string | ApiError;

/** A server on a free port that reads one body at a time and a raw connection to it. */
interface Rig extends AsyncDisposable {
  /** Of bodies in too many. */
  readonly refusedPieces: number[];
  /** Sends text or bytes as they are. */
  send(data: string | Uint8Array): Promise<void>;
  /** Sends a POST head with these header lines. */
  head(...lines: string[]): Promise<void>;
  /** Resolves when the server has begun to read a body. */
  started(): Promise<void>;
  /** What `readBody` made of the next request. */
  outcome(): Promise<Outcome>;
  /** What the server sent until now, once it contains `text`. */
  answered(text: string): Promise<string>;
  leave(): void;
  closeWrite(): Promise<void>;
}

async function createRig(options: Partial<ReadBodyOptions> = {}): Promise<Rig> {
  const deadlines = createDeadlines(monotonicNow);
  const budget = createBodyBudget({
    processBytesMax: 2 * BYTES_MAX,
    keyBytesMax: 2 * BYTES_MAX,
  });
  const outcomes: Outcome[] = [];
  const errors: unknown[] = [];
  const refusedPieces: number[] = [];
  let startedCount = 0;
  const read = async (
    source: Parameters<typeof readBody>[0],
  ): Promise<Outcome> => {
    try {
      const body = await readBody(source, {
        keyId: "key_a",
        bytesMax: BYTES_MAX,
        budget,
        progressMs: NEVER_MS,
        totalMs: NEVER_MS,
        deadlines,
        now: monotonicNow,
        onTooManyPieces: (pieces) => refusedPieces.push(pieces),
        ...options,
      });
      const text = body === null ? "gone" : decoder.decode(body.bytes);
      body?.release();
      return text;
    } catch (error) {
      if (error instanceof ApiError) return error;
      throw error;
    }
  };
  const server = await startServer({
    port: 0,
    hostname: "127.0.0.1",
    deadlines,
    now: monotonicNow,
    onError(error) {
      errors.push(error);
      return new Response("fault", { status: 500 });
    },
    async handler({ headers }, { openBody }) {
      const reading = read({ headers, openBody });
      startedCount++;
      const outcome = await reading;
      outcomes.push(outcome);
      if (typeof outcome === "string") return new Response("whole");
      const { status, headers: own } = outcome;
      return new Response("refused", { status, headers: { ...own } });
    },
  });
  const connection = await Deno.connect({
    hostname: "127.0.0.1",
    port: server.port,
  });
  let received = "";
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
  });

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
    refusedPieces,
    send,
    head: (...lines) =>
      send(`${["POST / HTTP/1.1", "Host: a", ...lines, "", ""].join("\r\n")}`),
    started: async () => {
      await until("a start", () => startedCount > 0 ? true : undefined);
    },
    outcome: () => until("an outcome", () => outcomes.shift()),
    answered: (text) =>
      until(text, () => received.includes(text) ? received : undefined),
    leave,
    closeWrite: () => connection.closeWrite(),
    async [Symbol.asyncDispose]() {
      leave();
      await receiving;
      await server.stop({ graceMs: 1_000, lastWordMs: 0 });
      assert.equal(deadlines.size, 0);
      assert.equal(budget.bytes, 0);
      deadlines.close();
      assert.deepEqual(errors, []);
    },
  };
}

function assertRefused(outcome: Outcome, status: number): void {
  assert.ok(outcome instanceof ApiError, String(outcome));
  assert.equal(outcome.status, status);
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
    ["in one chunk", [CHUNKED], chunk("{}") + LAST_CHUNK, "{}"],
    ["in two chunks", [CHUNKED], chunk("{") + chunk("}") + LAST_CHUNK, "{}"],
    ["in no chunk", [CHUNKED], LAST_CHUNK, ""],
    [
      "in one buffer",
      ["Content-Length: 65536"],
      "x".repeat(65_536),
      "x".repeat(65_536),
    ],
    [
      "in more than one",
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
      assert.equal(await rig.outcome(), body);
      await rig.answered("whole");
    });
  }
});

Deno.test("readBody() leaves the connection fit for the next request", async () => {
  await using rig = await createRig();
  for (const text of ["1", "22", "333"]) {
    await rig.head(`Content-Length: ${text.length}`);
    await rig.send(text);
    assert.equal(await rig.outcome(), text);
    await rig.head(CHUNKED);
    await rig.send(chunk(text) + LAST_CHUNK);
    assert.equal(await rig.outcome(), text);
  }
});

Deno.test("readBody() answers Expect: 100-continue and reads on", async () => {
  await using rig = await createRig();
  await rig.head("Content-Length: 5", "Expect: 100-continue");
  await rig.answered("100 Continue");
  await rig.send("hello");
  assert.equal(await rig.outcome(), "hello");
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
      if (isAccepted) assert.equal(outcome, "{}");
      else assertRefused(outcome, 415);
    });
  }
});

Deno.test("readBody() refuses a declared length over the limit before reading", async () => {
  await using rig = await createRig();
  await rig.head(`Content-Length: ${BYTES_MAX + 1}`);
  const outcome = await rig.outcome();
  assertRefused(outcome, 413);
  assert.match(String(outcome), /too large. The limit is 200000 bytes./);
  await rig.answered("413 Payload Too Large");
});

Deno.test("readBody() refuses a length of 20 digits", async () => {
  await using rig = await createRig();
  await rig.head("Content-Length: 10000000000000000000");
  assertRefused(await rig.outcome(), 413);
});

Deno.test("readBody() refuses chunks over the limit while they come", async () => {
  await using rig = await createRig();
  await rig.head(CHUNKED);
  await rig.send(chunk("x".repeat(BYTES_MAX)) + chunk("y"));
  assertRefused(await rig.outcome(), 413);
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
        assert.equal(outcome, "x".repeat(pieces));
        return;
      }
      assertRefused(outcome, 400);
      assert.deepEqual(rig.refusedPieces, [pieces]);
    });
  }
  await test.step("of more bytes: in more pieces", async () => {
    await using rig = await createRig();
    const pieces = PIECES_MAX + 300;
    const text = "x".repeat(Math.floor(BYTES_MAX / pieces));
    await rig.head(CHUNKED);
    await rig.started();
    await rig.send(chunk(text).repeat(pieces) + LAST_CHUNK);
    assert.equal(await rig.outcome(), text.repeat(pieces));
  });
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
      assertRefused(outcome, 408);
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
      assertRefused(await outcome, 408);
      const took = performance.now() - start;
      assert.ok(took >= SOON_MS - 1, `after ${took} ms`);
    });
  }
});

Deno.test("readBody() waits for a slow body that makes progress, however small", async (test) => {
  const progressMs = 500;
  for (
    const [head, byte, last] of [
      [CHUNKED, chunk("x"), LAST_CHUNK],
      ["Content-Length: 5", "x", ""],
    ] as const
  ) {
    await test.step(head, async () => {
      await using rig = await createRig({ progressMs });
      await rig.head(head);
      // Longer in all than any one silence may last.
      for (let sent = 0; sent < 5; sent++) {
        await new Promise((resolve) => setTimeout(resolve, progressMs / 4));
        await rig.send(byte);
      }
      await rig.send(last);
      assert.equal(await rig.outcome(), "xxxxx");
    });
  }
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
      assert.equal(await rig.outcome(), "gone");
    });
  }
});

Deno.test("readBody() tells when the client has only stopped sending", async () => {
  await using rig = await createRig();
  await rig.head("Content-Length: 10");
  await rig.send("ab");
  await rig.closeWrite();
  assert.equal(await rig.outcome(), "gone");
});

Deno.test("readBody() of broken chunks ends, and the server answers 400", async (test) => {
  for (const broken of ["zz\r\nfoo\r\n", "-1\r\n", "ffffffffffffffffff\r\n"]) {
    await test.step(broken.trim(), async () => {
      await using rig = await createRig();
      await rig.head(CHUNKED);
      await rig.send(chunk("hello"));
      await rig.started();
      await rig.send(broken);
      assert.equal(await rig.outcome(), "gone");
      await rig.answered("400 Bad Request");
    });
  }
});
