/**
 * The checks of every route of the console: what it refuses, and how it serves its
 * owner.
 */
import assert from "node:assert/strict";
import { isDeepStrictEqual } from "node:util";
import { amountOf } from "../../../tests/support/amount.ts";
import {
  type Answer,
  fieldsOf,
  type Form,
  ORIGIN,
  type TestClient,
} from "../client_fixture.ts";
import type { TestConsole } from "../console_fixture.ts";
import type { OwnerStore } from "../domain/owners/owner_store.ts";
import { checkHeaders, entries, type RouteOwner } from "../routes_fixture.ts";
import { INVITED, type ValidRequest } from "./valid_requests_fixture.ts";

const FORM_TYPE = "application/x-www-form-urlencoded";
const OURS = { origin: ORIGIN, "sec-fetch-site": "same-origin" };
const HOST = new URL(ORIGIN).host;
/** How many of many variations are tried on each route in the usual run. */
const SOME = 2;

/** Headers of requests that other sites make. */
const FOREIGN:
  readonly (readonly [name: string, headers: Record<string, string>])[] = [
    ["no Origin, no Sec-Fetch-Site", {}],
    ["Origin: null", { origin: "null" }],
    ["another origin", { origin: "https://evil.test" }],
    ["our host over http", { origin: `http://${HOST}` }],
    ["our host on another port", { origin: `${ORIGIN}:8443` }],
    ["a host that begins like ours", { origin: `${ORIGIN}.evil.test` }],
    ["Sec-Fetch-Site: cross-site", { "sec-fetch-site": "cross-site" }],
    ["Sec-Fetch-Site: same-site", { "sec-fetch-site": "same-site" }],
    ["Sec-Fetch-Site: none", { "sec-fetch-site": "none" }],
    ["cross-site with our Origin", {
      "sec-fetch-site": "cross-site",
      origin: ORIGIN,
    }],
    ["same-origin with another Origin", {
      "sec-fetch-site": "same-origin",
      origin: "https://evil.test",
    }],
    ["no Origin, but our Referer", { referer: `${ORIGIN}/keys` }],
  ];

/** Media types that no form of ours has. */
const TYPES = [
  "application/json",
  "text/plain",
  "multipart/form-data; boundary=x",
  "",
];

/**
 * Fields that an attacker might try to set: members of keys, of accounts and of every
 * object.
 */
const EXTRAS = [
  "own",
  "owner",
  "ownerId",
  "owner_id",
  "st",
  "state",
  "kid",
  "id",
  "hash",
  "hint",
  "ver",
  "createdAtMs",
  "limits",
  "is_admin",
  "role",
  "__proto__",
  "constructor",
  "prototype",
  "toString",
];

/** Bodies of forms, and how they are answered. */
const BODIES: readonly { name: string; status: number; body: BodyInit }[] = [
  {
    name: "32 KiB and a byte",
    status: 413,
    body: `a=${"a".repeat(32 * 1024 - 1)}`,
  },
  { name: "1 MiB", status: 413, body: "a".repeat(1024 * 1024) },
  { name: "no UTF-8", status: 400, body: Uint8Array.of(0x61, 0x3d, 0xff) },
  {
    name: "overlong",
    status: 400,
    body: Uint8Array.of(0x61, 0x3d, 0xc0, 0xaf),
  },
  {
    name: "surrogate",
    status: 400,
    body: Uint8Array.of(0x61, 0x3d, 0xed, 0xa0, 0x80),
  },
  { name: "cut", status: 400, body: Uint8Array.of(0x61, 0x3d, 0xe4, 0xbd) },
  // It is read, and then refused for its field.
  { name: "32 KiB", status: 400, body: `a=${"a".repeat(32 * 1024 - 2)}` },
];

/** The fields that may be repeated. */
const LISTS = ["scopes", "models", "keys"];

/** Inline styles and scripts, which the content security policy would block. */
const INLINE =
  /\sstyle=|<style|\son[a-z]+=|javascript:|<script(?![^>]*\ssrc=)/i;

/** Pages that store a one-time token for their form; no other GET changes anything. */
const PREPARES = ["GET /account/second-factor"];

/** The rest of the request that is tested. */
interface Variation {
  /** Appended to the path. */
  query?: string;
  /** Added to the form. */
  fields?: Form;
}

/** A route, its owner, and another owner with an API key. */
interface RouteParts {
  route: string;
  /** Whether it needs a sign-in. */
  isPrivate: boolean;
  owner: RouteOwner;
  other: RouteOwner;
  /** The value of the other owner's key. */
  keyValue: string;
  request: ValidRequest;
}

/** Checks a route with requests of its owner and of others. */
export class RouteCheck {
  readonly #site: TestConsole;
  readonly #parts: RouteParts;
  /** The browser of the owner. */
  readonly #client: TestClient;
  readonly #owners: Pick<OwnerStore, "ensure">;
  readonly #method: string;
  readonly #pattern: string;
  readonly #path: string;
  readonly #form: Form;
  readonly #isPost: boolean;

  constructor(site: TestConsole, parts: RouteParts) {
    const { route, owner, request } = parts;
    const [method = "", pattern = ""] = route.split(" ");
    this.#site = site;
    this.#parts = parts;
    this.#client = owner.client;
    this.#owners = site.deps.owners;
    this.#method = method;
    this.#pattern = pattern;
    this.#path = request.path ?? pattern.replace(":id", owner.keyId);
    this.#form = request.form ?? {};
    this.#isPost = method === "POST";
  }

  /** Neither a stranger nor another owner nor an API key gets in. */
  async refusesOthers(): Promise<void> {
    const { other, keyValue, isPrivate } = this.#parts;
    const isForOperators = /^\/(people|models)/.test(this.#pattern);
    if (isForOperators || /^.(keys.:id|projects.:)/.test(this.#pattern)) {
      const answer = await this.#ask(other.client);
      refuses(answer, 404, "another owner");
      if (isForOperators) assert.match(answer.text, /This page does not/);
    }
    const bearer = { authorization: `bearer ${keyValue}` };
    refuses(await this.#sendSignedOut(bearer), 401, "an API key");
    if (isPrivate) await this.#refusesStrangers();
  }

  /**
   * A secret in the URL grants nothing and is not passed on, since proxies log URLs; a
   * key in the cookie is no session.
   */
  async #refusesStrangers(): Promise<void> {
    const { owner, keyValue } = this.#parts;
    const secrets = ["", `?api_key=${keyValue}`, `?__Host-sid=${sidOf(owner)}`];
    const strangers = [
      ...secrets.map((query) => this.#ask(this.#site.client(), { query })),
      this.#sendSignedOut({ cookie: `__Host-sid=${keyValue}` }),
    ];
    const isKept = this.#isPost && !/^.(account|sign-out)/.test(this.#path);
    for (const answer of await Promise.all(strangers)) {
      refuses(answer, isKept ? 401 : 302, "a stranger");
      const location = answer.headers.get("location") ?? "/sign-in?next=-";
      assert.match(location, /^\/sign-in\?next=[-.\w%]+$/);
    }
  }

  /** A form is refused if another site sent it, or in another media type. */
  async refusesOtherSites(): Promise<void> {
    if (!this.#isPost) return;
    const body = fieldsOf(this.#form);
    for (const [name, headers] of this.#someOf(FOREIGN)) {
      refuses(await this.#send(headers, body), 403, name);
    }
    for (const type of this.#someOf(TYPES)) {
      const typed = { "content-type": type };
      const ours = await this.#send({ ...OURS, ...typed }, `${body}`);
      refuses(ours, 415, type);
      const foreign = { ...typed, origin: "https://evil.test" };
      refuses(await this.#send(foreign, `${body}`), 403, type);
    }
  }

  /** A form is refused with fields that it does not have, and with odd bodies. */
  async refusesOtherForms(): Promise<void> {
    if (!this.#isPost) return;
    for (const extra of this.#someOf(EXTRAS)) {
      const answer = await this.#ask(this.#client, {
        fields: { [extra]: "x" },
      });
      refuses(answer, 400, extra);
      assert.match(answer.text, /malformed or unknown field/, extra);
    }
    for (const name of Object.keys(this.#form)) {
      if (LISTS.includes(name)) continue;
      const fields = { [name]: ["1", "1"] };
      refuses(await this.#ask(this.#client, { fields }), 400, `${name} twice`);
    }
    const headers = { ...OURS, "content-type": FORM_TYPE };
    for (const { name, status, body } of this.#someOf(BODIES)) {
      refuses(await this.#send(headers, body), status, name);
    }
  }

  /** A method that the path does not have is answered with those that it has. */
  async refusesOtherMethods(): Promise<void> {
    const methods = ["GET", "POST"].filter((method) =>
      this.#site.routes.includes(`${method} ${this.#pattern}`)
    );
    const allow = methods.join(", ").replace("GET", "GET, HEAD");
    const others = ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"]
      .filter((method) => !methods.includes(method));
    for (const method of others) {
      const request = { method, headers: OURS };
      const answer = await this.#client.send(this.#path, request);
      refuses(answer, 405, method);
      assert.equal(answer.headers.get("allow"), allow);
    }
  }

  /** The owner's own request does what it says, and is audited. */
  async servesOwner(before: readonly string[]): Promise<void> {
    const { route, owner, request } = this.#parts;
    const { events = [], status = this.#isPost ? 303 : 200 } = request;
    const isFile = this.#pattern.startsWith("/assets/");
    const isInvited = this.#pattern.startsWith("/link/");
    checkHeaders(await this.#site.client().get(this.#path), { isFile });
    const audited = isInvited
      ? await this.#owners.ensure(INVITED)
      : request.accountId ?? owner.ownerId;
    const earlier = (await entries(this.#site, audited)).length;
    const answer = await this.#ask(this.#client);
    assert.equal(answer.status, status, this.#site.logLines.at(-1));
    checkHeaders(answer, { isFile });
    assert.ok(isFile || !INLINE.test(answer.text), answer.text);
    if (PREPARES.includes(route)) return;
    const changed = !isDeepStrictEqual(await this.#site.stored(), before);
    assert.equal(changed, this.#isPost, "only a form changes something");
    const added = (await entries(this.#site, audited)).slice(earlier);
    assert.deepEqual(added.map(({ action }) => action), events);
    for (const { by, ip, timeMs, action, keyId, hint } of added) {
      assert.equal(by, isInvited ? INVITED : owner.email);
      assert.equal(ip, owner.ip);
      assert.ok(Math.abs(timeMs - Date.now()) < 60_000);
      const isOfKey = keyId !== "" && hint !== "";
      assert.equal(isOfKey, action.startsWith("key."));
    }
  }

  /**
   * All variations of a request in the full run. In the usual one some of them, from
   * another place for each route, so that each is tried on several routes.
   */
  #someOf<Value>(all: readonly Value[]): readonly Value[] {
    const count = amountOf({ usual: SOME, full: all.length });
    const place = [...this.#parts.route]
      .reduce((sum, letter) => sum + letter.charCodeAt(0), 0);
    const from = place % all.length;
    return [...all, ...all].slice(from, from + count);
  }

  /** Sends the valid request, varied, from this browser. */
  #ask(
    who: TestClient,
    { query = "", fields = {} }: Variation = {},
  ): Promise<Answer> {
    const path = this.#path + query;
    return this.#isPost
      ? who.post(path, { ...this.#form, ...fields })
      : who.get(path);
  }

  /** Sends a form from the owner's browser with exactly these headers. */
  #send(headers: Record<string, string>, body: BodyInit): Promise<Answer> {
    return this.#client.send(this.#path, { method: "POST", headers, body });
  }

  /** Sends the valid request from a new browser with more headers. */
  #sendSignedOut(headers: Record<string, string>): Promise<Answer> {
    return this.#site.client().send(this.#path, {
      method: this.#method,
      headers: { ...OURS, ...headers },
      ...this.#isPost && { body: fieldsOf(this.#form) },
    });
  }
}

/** Fails unless it was refused, and shows nothing of the owner. */
function refuses(answer: Answer, status: number, name: string): void {
  assert.equal(answer.status, status, name);
  assert.ok(!answer.text.includes("Secret project"), name);
}

/** The value of the cookie of the owner's session. */
export const sidOf = ({ client }: RouteOwner): string =>
  client.cookies.get("__Host-sid") ?? "";
