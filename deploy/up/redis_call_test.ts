import assert from "node:assert/strict";
import type { RedisAddress } from "@gateway/shared/redis/link";
import {
  redisCall,
  type RedisEndpoint,
  redisEndpoint,
  RedisReplyError,
} from "./redis_call.ts";

Deno.test("redisEndpoint() reads address, credentials, database and TLS", () => {
  const cases: [RedisAddress, RedisEndpoint][] = [
    [
      { url: "redis://127.0.0.1:7000" },
      { hostname: "127.0.0.1", port: 7000, greeting: [] },
    ],
    [
      { url: "redis://:p%40ss@h/3" },
      {
        hostname: "h",
        port: 6379,
        greeting: [["AUTH", "p@ss"], ["SELECT", "3"]],
      },
    ],
    [
      { url: "redis://ann:pw@h" },
      { hostname: "h", port: 6379, greeting: [["AUTH", "ann", "pw"]] },
    ],
    [
      { url: "redis://h", username: "ann", password: "p%w" },
      { hostname: "h", port: 6379, greeting: [["AUTH", "ann", "p%w"]] },
    ],
    [
      { url: "rediss://cache" },
      { hostname: "cache", port: 6379, greeting: [], tls: {} },
    ],
    [
      { url: "rediss://cache", tlsCa: "CA" },
      { hostname: "cache", port: 6379, greeting: [], tls: { caCerts: ["CA"] } },
    ],
    [
      { url: "rediss://cache", tlsCert: "CERT", tlsKey: "KEY" },
      {
        hostname: "cache",
        port: 6379,
        greeting: [],
        tls: { client: { cert: "CERT", key: "KEY" } },
      },
    ],
  ];
  for (const [address, expected] of cases) {
    assert.deepEqual(redisEndpoint(address), expected);
  }
  const read = (url: string) => () => redisEndpoint({ url });
  assert.throws(read("http://h"), /must begin with redis:/);
  assert.throws(read("no address"), TypeError);
});

const REPLIES = "+OK\r\n:7\r\n$3\r\na\r\n\r\n$-1\r\n*2\r\n$1\r\nx\r\n*-1\r\n";

Deno.test("redisCall() reads replies however they are cut", async () => {
  for (const piece of [1, 2, 5, 1_000]) {
    await using server = serveOnce(REPLIES, piece);
    const commands = Array.from({ length: 5 }, () => ["PING"]);
    assert.deepEqual(
      await redisCall(server, commands, 2_000),
      ["OK", 7, "a\r\n".slice(0, 3), null, ["x", null]],
    );
  }
});

Deno.test("redisCall() fails with a plain message", async (t) => {
  const cases: [name: string, text: string, error: RegExp][] = [
    ["refusal", "-NOAUTH Authentication required.\r\n", /^NOAUTH/],
    ["another protocol", "SSH-2.0-x\r\n", /not Redis/],
    ["end in the middle", "$5\r\nab", /closed/],
  ];
  for (const [name, text, error] of cases) {
    await t.step(name, async () => {
      await using server = serveOnce(text, 1_000);
      await assert.rejects(redisCall(server, [["PING"]], 2_000), (e) => {
        assert.ok(e instanceof Error);
        assert.equal(e instanceof RedisReplyError, name === "refusal");
        assert.match(e.message, error);
        return true;
      });
    });
  }
  await t.step("silence", async () => {
    await using server = serveOnce("", 1, true);
    await assert.rejects(
      redisCall(server, [["PING"]], 50),
      /no answer within 50 ms/,
    );
  });
  await t.step("nobody there", async () => {
    await assert.rejects(
      redisCall({ url: "redis://127.0.0.1:1" }, [["PING"]], 2_000),
      /connection refused/,
    );
  });
});

/** Sends `text` in pieces to the first caller, then closes, or stays silent. */
function serveOnce(
  text: string,
  pieceBytes: number,
  isSilent = false,
): AsyncDisposable & { url: string } {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const serve = async () => {
    const connection = await listener.accept();
    connection.setNoDelay(true);
    const bytes = new TextEncoder().encode(text);
    await connection.read(new Uint8Array(1_000));
    for (let at = 0; at < bytes.length; at += pieceBytes) {
      await connection.write(bytes.subarray(at, at + pieceBytes));
    }
    if (isSilent) await connection.read(new Uint8Array(1));
    connection.close();
  };
  const served = serve();
  return {
    url: `redis://127.0.0.1:${listener.addr.port}`,
    async [Symbol.asyncDispose]() {
      listener.close();
      await served;
    },
  };
}
