/** Where model servers have further paths. */
import assert from "node:assert/strict";
import { urlOfPath } from "./other_paths.ts";

const URLS: { baseUrl: string; path: string; url: string }[] = [
  {
    baseUrl: "http://a:8000/v1",
    path: "/v1/moderations",
    url: "http://a:8000/v1/moderations",
  },
  {
    baseUrl: "http://a:8000/v1",
    path: "/tokenize",
    url: "http://a:8000/tokenize",
  },
  { baseUrl: "https://a/x/v1", path: "/v1/a/b", url: "https://a/x/v1/a/b" },
  { baseUrl: "https://a/x/v1", path: "/score", url: "https://a/x/score" },
  { baseUrl: "https://a/v1beta", path: "/score", url: "https://a/score" },
  {
    baseUrl: "https://a/openai",
    path: "/v1/score",
    url: "https://a/openai/score",
  },
  {
    baseUrl: "https://a/openai",
    path: "/score",
    url: "https://a/openai/score",
  },
];

for (const { baseUrl, path, url } of URLS) {
  Deno.test(`${path} of the server ${baseUrl} is ${url}`, () => {
    assert.equal(urlOfPath({ base_url: baseUrl }, path).href, url);
  });
}
