import assert from "node:assert/strict";
import { mock } from "node:test";
import {
  type FakeModelServer,
  startFakeModelServer,
} from "../../../tests/support/fake_model_server.ts";
import { jsonResponse } from "../../../tests/support/model_answers.ts";
import { makeSelfSigned } from "../../../tests/support/deployed/self_signed.ts";
import { type ConnectOptions, createConnect } from "./http_client.ts";

const never = new AbortController().signal;
const REQUEST = new TextEncoder().encode("GET / HTTP/1.1\r\n\r\n");

function startTlsServer(hostname: string): [FakeModelServer, string] {
  const tls = makeSelfSigned(hostname);
  return [
    startFakeModelServer({ reply: () => jsonResponse({}), tls }),
    tls.cert,
  ];
}

async function firstWord(options: ConnectOptions): Promise<string> {
  const connection = await createConnect(options)(never);
  try {
    await connection.write(REQUEST);
    const buffer = new Uint8Array(4);
    await connection.read(buffer);
    return new TextDecoder().decode(buffer);
  } finally {
    connection.close();
  }
}

for (const isTls of [false, true]) {
  Deno.test(`createConnect() sets TCP_NODELAY before the first byte, ${isTls ? "TLS" : "plain"}`, async () => {
    const [server, cert] = isTls
      ? startTlsServer("localhost")
      : [startFakeModelServer({ reply: () => jsonResponse({}) }), ""];
    await using _server = server;
    const calls: string[] = [];
    const original = Deno.connect;
    const spy = mock.method(
      Deno,
      "connect",
      async (options: Deno.ConnectOptions) => {
        const conn = await original(options);
        mock.method(conn, "setNoDelay", (isOn: boolean) => {
          calls.push(`noDelay ${isOn}`);
          Object.getPrototypeOf(conn).setNoDelay.call(conn, isOn);
        });
        return conn;
      },
    );
    try {
      const word = await firstWord({
        hostname: "localhost",
        port: server.port,
        isTls,
        caCerts: isTls ? [cert] : [],
      });
      assert.equal(word, "HTTP");
    } finally {
      spy.mock.restore();
    }
    assert.deepEqual(calls, ["noDelay true"]);
  });
}

const distrusted: { name: string; certFor: string; trust: boolean }[] = [
  { name: "nobody vouches for", certFor: "localhost", trust: false },
  { name: "another host owns", certFor: "elsewhere.test", trust: true },
];

for (const { name, certFor, trust } of distrusted) {
  Deno.test(`createConnect() refuses a certificate that ${name}`, async () => {
    const [server, cert] = startTlsServer(certFor);
    await using _server = server;
    await assert.rejects(
      firstWord({
        hostname: "localhost",
        port: server.port,
        isTls: true,
        caCerts: trust ? [cert] : [],
      }),
      /certificate/,
    );
  });
}

Deno.test("createConnect() gives up a TLS handshake when it is aborted", async () => {
  await using server = startFakeModelServer({ reply: () => [] });
  const connecting = createConnect({
    hostname: "localhost",
    port: server.port,
    isTls: true,
  })(
    AbortSignal.timeout(50),
  );
  await assert.rejects(connecting);
});

Deno.test("createConnect() opens nothing when it is aborted before", async () => {
  await using server = startFakeModelServer({ reply: () => [] });
  const connect = createConnect({
    hostname: "127.0.0.1",
    port: server.port,
    isTls: false,
  });
  await assert.rejects(connect(AbortSignal.abort(new Error("Client left"))));
  assert.equal(server.openConnections, 0);
});
