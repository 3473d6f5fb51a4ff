/** Connections by TCP and TLS. */
import assert from "node:assert/strict";
import { mock } from "node:test";
import { startScriptedServer } from "../../../tests/support/model_servers/scripted_server.ts";
import { jsonResponse } from "../../../tests/support/model_servers/model_answers.ts";
import { makeSelfSigned } from "../../../tests/support/deployed/test_authority.ts";
import { createConnect } from "./connect.ts";
import type { Proxy } from "./proxy.ts";

const decoder = new TextDecoder();
const REQUEST = new TextEncoder().encode(
  "POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
);

const reply = () => jsonResponse({});

async function firstWord(
  url: string,
  caCerts: string[] = [],
  proxy: Proxy | null = null,
): Promise<string> {
  const { signal } = new AbortController();
  const connect = createConnect(new URL(url), { caCerts, proxy });
  const connection = await connect(signal);
  try {
    await connection.write(REQUEST);
    const buffer = new Uint8Array(4);
    await connection.read(buffer);
    return decoder.decode(buffer);
  } finally {
    connection.close();
  }
}

Deno.test("createConnect() sets TCP_NODELAY before the first byte, with TLS too", async () => {
  for (const tls of [undefined, await makeSelfSigned("localhost")]) {
    await using server = startScriptedServer({ reply, ...(tls && { tls }) });
    const calls: boolean[] = [];
    const { connect } = Deno;
    const spied = async (options: Deno.ConnectOptions) => {
      const conn = await connect(options);
      mock.method(conn, "setNoDelay", (isOn: boolean) => calls.push(isOn));
      return conn;
    };
    const spy = mock.method(Deno, "connect", spied);
    try {
      const word = await firstWord(server.baseUrl, tls && [tls.cert]);
      assert.equal(word, "HTTP");
    } finally {
      spy.mock.restore();
    }
    assert.deepEqual(calls, [true]);
  }
});

Deno.test("createConnect() refuses a certificate of an unknown authority or for another host", async () => {
  for (const [host, isTrusted] of [["localhost", false], ["else.test", true]]) {
    const tls = await makeSelfSigned(String(host));
    await using server = startScriptedServer({ reply, tls });
    const connecting = firstWord(server.baseUrl, isTrusted ? [tls.cert] : []);
    await assert.rejects(connecting, /certificate/);
  }
});

Deno.test("createConnect() gives up a TLS handshake when it is aborted", async () => {
  await using server = startScriptedServer({ reply: () => [] });
  const connect = createConnect(new URL(`https://localhost:${server.port}`));
  await assert.rejects(connect(AbortSignal.timeout(50)));
});

/** A proxy that opens the first tunnel it is asked for, and says where it led. */
function startProxy() {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const names: string[] = [];
  const serving = (async () => {
    const client = await listener.accept();
    const buffer = new Uint8Array(1_024);
    const bytes = await client.read(buffer) ?? 0;
    const [head = ""] = decoder.decode(buffer.subarray(0, bytes)).split("\r\n");
    names.push(head);
    const [, hostname = "", port] = /^CONNECT (.*):(\d+) /.exec(head) ?? [];
    const server = await Deno.connect({ hostname, port: Number(port) });
    await client.write(new TextEncoder().encode("HTTP/1.1 200 OK\r\n\r\n"));
    await Promise.allSettled([
      client.readable.pipeTo(server.writable),
      server.readable.pipeTo(client.writable),
    ]);
  })();
  const { port } = listener.addr;
  return {
    proxy: { hostname: "127.0.0.1", port, authorization: null },
    names,
    async [Symbol.asyncDispose]() {
      listener.close();
      await serving;
    },
  };
}

Deno.test("createConnect() passes through a proxy, with TLS inside of the tunnel too", async () => {
  for (const tls of [undefined, await makeSelfSigned("localhost")]) {
    await using server = startScriptedServer({ reply, ...(tls && { tls }) });
    await using tunnel = startProxy();
    const { proxy } = tunnel;
    const caCerts = tls ? [tls.cert] : [];
    assert.equal(await firstWord(server.baseUrl, caCerts, proxy), "HTTP");
    const { host } = new URL(server.baseUrl);
    assert.deepEqual(tunnel.names, [`CONNECT ${host} HTTP/1.1`]);
  }
});
