// Promise: the proxy of deploy/proxy serves TLS only, does not redirect from HTTP to
// HTTPS, and exposes nothing internal.
import assert from "node:assert/strict";
import { readSource } from "../support/repository/source_files.ts";

const TEXT = readSource("deploy/proxy/Caddyfile").replace(/^\s*#.*$/gm, "");
/** The blocks of the file by their headings, which are addresses for sites. */
const BLOCKS = new Map(
  [...TEXT.matchAll(/^(\S.*?)? ?\{\n([\s\S]*?)^\}/gm)]
    .map(([, head = "", body = ""]) => [head, body]),
);
const OPTIONS = BLOCKS.get("") ?? "";
/** The sites that are not only for this machine. */
const SITES = [...BLOCKS].filter(([head, body]) =>
  !/^$|^\(/.test(head) && !body.includes("bind 127.0.0.1")
);

Deno.test("ASVS 12.1.1, 12.2.1: every public site is served over TLS 1.2 or later", () => {
  assert.deepEqual(
    SITES.map(([head]) => head),
    ["{$API_HOST:localhost}", "{$CONSOLE_HOST:console.localhost}"],
  );
  for (const [, body] of SITES) assert.match(body, /^\s*import door$/m);
  assert.match(BLOCKS.get("(door)") ?? "", /^\s*tls \{\$TLS:internal\}$/m);
  // The proxy's defaults are 1.2 and 1.3; the file must not change them.
  assert.doesNotMatch(TEXT, /tls1\.[01]|insecure|protocols tls/);
});

Deno.test("ASVS 4.1.2: plain HTTP is not redirected to HTTPS, and the proxy has no administration port", () => {
  assert.match(OPTIONS, /^\s*auto_https disable_redirects$/m);
  assert.match(OPTIONS, /^\s*admin off$/m);
});

Deno.test("API4: the proxy closes slow and idle connections", () => {
  const times = ["read_header 10s", "read_body 120s", "idle 60s"];
  for (const bound of [...times, "max_header_size 32KB"]) {
    assert.ok(OPTIONS.includes(bound), bound);
  }
  for (const [head, body] of SITES) assert.match(body, /max_size /, head);
});
