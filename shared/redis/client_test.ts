/** The client of one connection, before a server whose every byte the test decides. */
import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { RedisClient, signInCommands } from "./client.ts";

/** A client, the server's end of its connection, and why the client lost it. */
async function startPair() {
  await using starting = new AsyncDisposableStack();
  const server = net.createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  starting.defer(() =>
    new Promise<void>((done) => void server.close(() => done()))
  );
  const address = server.address();
  assert.ok(address !== null && typeof address === "object");
  const lost = Promise.withResolvers<unknown>();
  const url = `redis://127.0.0.1:${address.port}`;
  const client = new RedisClient({ url }, lost.resolve);
  starting.defer(() => client.destroy());
  const [peer]: net.Socket[] = await once(server, "connection");
  assert.ok(peer !== undefined);
  starting.defer(() => void peer.destroy());
  peer.setEncoding("utf8");
  const owned = starting.move();
  return {
    client,
    peer,
    lost: lost.promise,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

Deno.test("commands of one turn are one write, and replies are theirs in order, however cut", async () => {
  await using pair = await startPair();
  const { client, peer } = pair;
  const replies = [client.send(["GET", "é\r\n"]), client.send(["EVAL"])];
  const [sent] = await once(peer, "data");
  const expected = "*2\r\n$3\r\nGET\r\n$4\r\né\r\n\r\n*1\r\n$4\r\nEVAL\r\n";
  assert.equal(sent, expected);
  const failed = assert.rejects(client.send(["X"]), /ERR no$/);
  await once(peer, "data");
  const text =
    "$4\r\né\r\n\r\n*4\r\n:-7\r\n$-1\r\n*1\r\n+OK\r\n*0\r\n-ERR no\r\n";
  peer.setNoDelay(true);
  for (const byte of new TextEncoder().encode(text)) {
    peer.write(Uint8Array.of(byte));
    await new Promise(setImmediate);
  }
  assert.deepEqual(await Promise.all(replies), [
    "é\r\n",
    [-7, null, ["OK"], []],
  ]);
  await failed;
  assert.ok(client.isOpen);
});

const ENDINGS: {
  name: string;
  end: (peer: net.Socket) => void;
  why: RegExp;
}[] = [
  {
    name: "ends",
    end: (peer) => void peer.end(),
    why: /closed the connection/,
  },
  {
    name: "speaks unasked",
    end: (peer) => void peer.write("+OK\r\n+OK\r\n"),
    why: /no command/,
  },
  {
    name: "speaks no RESP",
    end: (peer) => void peer.write("HTTP/1.1 400\r\n"),
    why: /Unknown RESP type/,
  },
];
for (const { name, end, why } of ENDINGS) {
  Deno.test(`a server that ${name} loses the client, which says why`, async () => {
    await using pair = await startPair();
    const { client, peer, lost } = pair;
    const [first, second] = [client.send(["A"]), client.send(["B"])];
    const settled = Promise.allSettled([first, second]);
    await once(peer, "data");
    end(peer);
    if (name === "speaks unasked") {
      assert.deepEqual(await Promise.all([first, second]), ["OK", "OK"]);
      end(peer);
    }
    const cause = await lost;
    assert.match(String(cause), why);
    assert.equal(client.isOpen, false);
    if (name !== "speaks unasked") {
      const rejected = { status: "rejected", reason: cause };
      assert.deepEqual(await settled, [rejected, rejected]);
    }
    await assert.rejects(client.send(["C"]), /Not connected/);
  });
}

Deno.test("a client that is destroyed fails what waits, and loses nothing", async () => {
  await using pair = await startPair();
  const { client, lost } = pair;
  const waiting = assert.rejects(client.send(["A"]), /given up/);
  client.destroy();
  await waiting;
  const never = new Promise((resolve) => setImmediate(() => resolve("never")));
  assert.equal(await Promise.race([lost, never]), "never");
});

Deno.test("the address says how to sign in; what its URL names wins", () => {
  const url = "redis://127.0.0.1";
  const rows: [Parameters<typeof signInCommands>[0], string[]][] = [
    [{ url }, []],
    [{ url, password: "p" }, ["AUTH p"]],
    [{ url, username: "u", password: "p", clientName: "edge" }, [
      "AUTH u p",
      "CLIENT SETNAME edge",
    ]],
    [{ url: "redis://a%40b:c%2Fd@h:1/3", username: "u", password: "p" }, [
      "AUTH a@b c/d",
      "SELECT 3",
    ]],
    [{ url: "redis://:only@h" }, ["AUTH only"]],
  ];
  for (const [server, lines] of rows) {
    const commands = signInCommands(server).map((args) => args.join(" "));
    assert.deepEqual(commands, lines);
  }
});
