/** Where model servers have further paths. */
import assert from "node:assert/strict";
import { urlOfPath } from "./other_paths.ts";

const URLS: [baseUrl: string, path: string, url: string][] = [
  ["http://a:8000/v1", "/v1/moderations", "http://a:8000/v1/moderations"],
  ["http://a:8000/v1", "/tokenize", "http://a:8000/tokenize"],
  ["https://a/x/v1", "/v1/a/b", "https://a/x/v1/a/b"],
  ["https://a/x/v1", "/score", "https://a/x/score"],
  ["https://a/v1beta", "/score", "https://a/score"],
  ["https://a/openai", "/v1/score", "https://a/openai/score"],
  ["https://a/openai", "/score", "https://a/openai/score"],
];

for (const [baseUrl, path, url] of URLS) {
  Deno.test(`${path} of the server ${baseUrl} is ${url}`, () => {
    assert.equal(urlOfPath({ base_url: baseUrl }, path).href, url);
  });
}
