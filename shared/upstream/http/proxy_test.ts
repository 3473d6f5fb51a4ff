// Which proxy leads to a server, and what passes through it.
import assert from "node:assert/strict";
import {
  type ByteConnection,
  openTunnel,
  parseProxy,
  proxyOf,
  type ProxyVariables,
} from "./proxy.ts";

const PROXY = "http://proxy.example:3128";
const BOTH: ProxyVariables = {
  httpsProxy: PROXY,
  httpProxy: "http://plain.example:8080",
  noProxy: undefined,
};

const TARGETS: readonly {
  target: string;
  noProxy?: string;
  host: string | undefined;
}[] = [
  { target: "https://api.example/v1", host: "proxy.example" },
  { target: "http://vllm:8000/v1", host: "plain.example" },
  { target: "http://localhost:11434/v1", host: undefined },
  { target: "http://127.0.0.2:11434/v1", host: undefined },
  { target: "http://[::1]:11434/v1", host: undefined },
  { target: "https://api.example", noProxy: "*", host: undefined },
  { target: "https://api.example", noProxy: "api.example", host: undefined },
  { target: "https://a.api.example", noProxy: "api.example", host: undefined },
  { target: "https://a.api.example", noProxy: ".api.example", host: undefined },
  { target: "https://a.example", noProxy: "*.example", host: undefined },
  { target: "https://API.example", noProxy: "x, Api.Example", host: undefined },
  {
    target: "https://myapi.example",
    noProxy: "api.example",
    host: "proxy.example",
  },
  { target: "https://a.example", noProxy: "a.example:443", host: undefined },
  {
    target: "https://a.example:8443",
    noProxy: "a.example:443",
    host: "proxy.example",
  },
  { target: "http://10.1.2.3:8000", noProxy: "10.0.0.0/8", host: undefined },
  {
    target: "http://11.1.2.3:8000",
    noProxy: "10.0.0.0/8,10.1.2.3",
    host: "plain.example",
  },
  { target: "http://10.1.2.3:8000", noProxy: "10.1.2.3", host: undefined },
  {
    target: "http://[fd00::1]:8000",
    noProxy: "[fd00::1]:8000",
    host: undefined,
  },
  { target: "https://a.example", noProxy: " ,,.", host: "proxy.example" },
];

Deno.test("proxyOf() follows the variables that other programs obey", () => {
  for (const { target, noProxy, host } of TARGETS) {
    const proxy = proxyOf(new URL(target), { ...BOTH, noProxy });
    assert.equal(proxy?.hostname, host, `${target} with ${noProxy}`);
  }
  const none = { httpsProxy: "", httpProxy: undefined, noProxy: undefined };
  assert.equal(proxyOf(new URL("https://a.example"), none), null);
});

Deno.test("parseProxy() reads host, port and credentials, and refuses other kinds", () => {
  assert.deepEqual(parseProxy("http://us%40er:p%3Aw@[fd00::1]"), {
    hostname: "fd00::1",
    port: 80,
    authorization: `Basic ${btoa("us@er:p:w")}`,
  });
  assert.equal(parseProxy("http://proxy:3128").authorization, null);
  for (
    const text of [
      "socks5://proxy:1080",
      "https://proxy",
      "http://",
      "proxy:3128",
    ]
  ) {
    assert.throws(() => parseProxy(text), /expected a URL like/, text);
  }
});

/** A connection that answers with these pieces, and records what was written. */
function scripted(pieces: readonly string[]) {
  const left = pieces.map((piece) => new TextEncoder().encode(piece));
  let written = "";
  const connection: ByteConnection = {
    read(buffer) {
      const piece = left.shift();
      if (piece !== undefined) buffer.set(piece);
      return Promise.resolve(piece?.length ?? null);
    },
    // One byte at a time, as a blocked socket takes them.
    write(bytes) {
      written += new TextDecoder().decode(bytes.subarray(0, 1));
      return Promise.resolve(1);
    },
    close() {},
  };
  return { connection, written: () => written };
}

const ANSWERS: readonly { pieces: string[]; message: RegExp | null }[] = [
  { pieces: ["HTTP/1.1 200 Connection established\r\n\r\n"], message: null },
  { pieces: ["HTTP/1.0 200 OK\r\nVia: x\r\n", "\r", "\n"], message: null },
  { pieces: ["HTTP/1.1 407 No\r\n\r\n"], message: /refused .* status 407/ },
  { pieces: ["SSH-2.0-x\r\n\r\n"], message: /no HTTP/ },
  { pieces: ["HTTP/1.1 200 OK\r\n"], message: /closed the connection/ },
  { pieces: ["x".repeat(16 * 1024)], message: /over 16384 bytes/ },
];

Deno.test("openTunnel() asks for a tunnel and says why there is none", async () => {
  const target = { hostname: "fd00::2", port: 443 };
  const proxy = parseProxy("http://user:pw@proxy:3128");
  for (const { pieces, message } of ANSWERS) {
    const { connection, written } = scripted(pieces);
    const opened = openTunnel(connection, proxy, target);
    if (message === null) await opened;
    else await assert.rejects(opened, { message });
    assert.equal(
      written(),
      "CONNECT [fd00::2]:443 HTTP/1.1\r\nHost: [fd00::2]:443\r\n" +
        `Proxy-Authorization: Basic ${btoa("user:pw")}\r\n\r\n`,
    );
  }
});
