/** Owners with a key, and checks of all answers. */
import assert from "node:assert/strict";
import type { AuditRow } from "./domain/audit/audit_log.ts";
import type { Answer, TestClient } from "./client_fixture.ts";
import { storedKey, type TestConsole } from "./console_fixture.ts";

/** The audit log of an owner, oldest first. */
export async function entries(
  { deps }: TestConsole,
  ownerId: string,
): Promise<AuditRow[]> {
  const query = { action: "", keyId: "", before: "", rows: 100 };
  return (await deps.audit.read(ownerId, query)).rows.reverse();
}

/** The headers that keep a browser safe. */
const HEADERS: [name: string, value: RegExp][] = [
  ["content-security-policy", /default-src 'none'.*frame-ancestors 'none'/],
  ["strict-transport-security", /max-age=31536000/],
  ["x-content-type-options", /^nosniff$/],
  ["x-frame-options", /^DENY$/],
  ["referrer-policy", /^same-origin$/],
  ["cross-origin-opener-policy", /^same-origin$/],
  ["cross-origin-resource-policy", /^same-origin$/],
  ["x-request-id", /^[0-9a-f]{32}$/],
];

/** Fails if an answer of the console lacks a header that keeps a browser safe. */
export function checkHeaders(
  { headers }: Answer,
  { isFile = false } = {},
): void {
  for (const [header, value] of HEADERS) {
    assert.match(headers.get(header) ?? "", value, header);
  }
  const policy = headers.get("content-security-policy") ?? "";
  assert.ok(!/unsafe-inline|unsafe-eval|\*/.test(policy), policy);
  assert.match(
    headers.get("cache-control") ?? "",
    isFile ? /immutable/ : /^no-store$/,
  );
  for (const [header] of headers) {
    assert.ok(!header.startsWith("access-control-"), header);
  }
  if (headers.has("content-type")) {
    assert.match(headers.get("content-type") ?? "", /; charset=utf-8$/i);
  }
}

/** An owner, signed in, with one key. */
export interface RouteOwner {
  email: string;
  ownerId: string;
  client: TestClient;
  /** The address of the owner's browser, in a network of its own. */
  ip: string;
  keyId: string;
}

/** Adds the `n`th owner. */
export async function routeOwner(
  site: TestConsole,
  n: number,
): Promise<RouteOwner> {
  const email = `owner${n}@example.org`;
  // Attempts to sign in are limited for each prefix, too.
  const prefix = (0xdb8 + (n >> 5)).toString(16);
  const ip = `2001:${prefix}:0:${n.toString(16)}::1`;
  const client = await site.signedIn(email, ip);
  const ownerId = await site.deps.owners.find(email) ?? assert.fail(email);
  const { id } = await storedKey(site, ownerId, {
    description: `Secret project ${n}`,
  });
  return { email, ownerId, client, ip, keyId: id };
}
