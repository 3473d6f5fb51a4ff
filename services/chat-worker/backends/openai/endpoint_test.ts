import assert from "node:assert/strict";
import { endpointOf, hostnameOf, portOf } from "./endpoint.ts";

const cases: {
  baseUrl: string;
  url: string;
  hostname: string;
  port: number;
}[] = [
  {
    baseUrl: "http://gpu:8000/v1",
    url: "http://gpu:8000/v1/chat/completions",
    hostname: "gpu",
    port: 8000,
  },
  {
    baseUrl: "http://gpu:8000/v1/",
    url: "http://gpu:8000/v1/chat/completions",
    hostname: "gpu",
    port: 8000,
  },
  {
    baseUrl: "https://api.example",
    url: "https://api.example/chat/completions",
    hostname: "api.example",
    port: 443,
  },
  {
    baseUrl: "http://api.example/x?v=1#y",
    url: "http://api.example/x/chat/completions?v=1",
    hostname: "api.example",
    port: 80,
  },
  {
    baseUrl: "http://[::1]:80/v1",
    url: "http://[::1]/v1/chat/completions",
    hostname: "::1",
    port: 80,
  },
];

for (const { baseUrl, url, hostname, port } of cases) {
  Deno.test(`endpointOf() reads ${baseUrl}`, () => {
    const endpoint = endpointOf(baseUrl);
    assert.equal(endpoint.href, url);
    assert.equal(hostnameOf(endpoint), hostname);
    assert.equal(portOf(endpoint), port);
  });
}

for (
  const baseUrl of [
    "",
    "gpu:8000/secret",
    "ftp://secret/v1",
    "http://user:secret@gpu/v1",
  ]
) {
  Deno.test(`endpointOf() refuses ${JSON.stringify(baseUrl)}, and does not repeat it`, () => {
    assert.throws(() => endpointOf(baseUrl), (error) => {
      assert.ok(error instanceof Error);
      assert.ok(!error.message.includes("secret"));
      return true;
    });
  });
}
