// Promise: people sign in to the console through an OpenID Connect provider that nobody
// here wrote, with its pages, and prove there again who they are. Run by
// `deno task test:foreign`.
import assert from "node:assert/strict";
import {
  ORIGIN,
  type TestClient,
} from "../../services/key-admin/client_fixture.ts";
import { startConsole } from "../../services/key-admin/console_fixture.ts";
import type {
  Grant,
  GroupRules,
} from "../../services/key-admin/domain/sign_in/groups.ts";
import { OidcClient } from "../../services/key-admin/domain/sign_in/oidc.ts";
import { keyForm } from "../../services/key-admin/forms_fixture.ts";
import { freePort } from "../support/servers/local_server.ts";
import { CACHE, installOnce, print, startProcess } from "../support/process.ts";
import { waitFor } from "../support/wait_for.ts";

const NAME = "oidc-provider";
const VERSION = "9.13.3";
const cwd = `${CACHE}/chat-gateway-foreign`;
const PROGRAM = "openid_provider.mjs";
const CLIENTS = new URL("clients/", import.meta.url).pathname;
const INSTALL = `npm install --no-audit --no-fund --silent --ignore-scripts \\
  --prefix ${NAME} ${NAME}@${VERSION}`;
const SECRET = "a client secret of thirty-two characters";
const CALLBACK = new URL("/sign-in/oidc/callback", ORIGIN);
/** Longer than any sign-in: the provider's login, its consent and the way back. */
const REDIRECTS_MAX = 12;

/** A browser at the provider. */
class ProviderVisitor {
  readonly #cookies = new Map<string, string>();

  /** Follows the provider's pages as `address`, until they lead back to the console. */
  async signIn(start: URL, address: string): Promise<URL> {
    let answer = await this.#send(start);
    for (let step = 0; step < REDIRECTS_MAX; step += 1) {
      const location = answer.headers.get("location");
      if (location === null) {
        answer = await this.#fillIn(answer, address);
        continue;
      }
      const to = new URL(location, answer.url);
      if (to.origin === ORIGIN) return to;
      answer = await this.#send(to);
    }
    return assert.fail("the provider's pages lead nowhere");
  }

  /** Sends the form of a page: the login, or the consent. */
  async #fillIn(page: Response, address: string): Promise<Response> {
    const text = await page.text();
    const [, action = assert.fail(text)] = /action="([^"]+)"/.exec(text) ?? [];
    const [, prompt = assert.fail(text)] =
      /name="prompt" value="(\w+)"/.exec(text) ?? [];
    const body = new URLSearchParams({ prompt });
    if (prompt === "login") {
      body.set("login", address);
      body.set("password", "any");
    }
    return await this.#send(new URL(action, page.url), body);
  }

  async #send(url: URL, body?: URLSearchParams): Promise<Response> {
    const cookie = Array.from(this.#cookies, (pair) => pair.join("=")).join(
      "; ",
    );
    const answer = await fetch(url, {
      method: body === undefined ? "GET" : "POST",
      headers: { cookie },
      redirect: "manual",
      ...body && { body },
    });
    for (const line of answer.headers.getSetCookie()) {
      const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
      this.#cookies.set(name, value);
    }
    if (answer.headers.has("location")) await answer.body?.cancel();
    return answer;
  }
}

/** The console behind the provider. */
async function startBoth(rules: GroupRules = new Map()) {
  await using starting = new AsyncDisposableStack();
  const port = await freePort();
  const provider = starting.use(startProcess({
    command: "sh",
    args: [
      "-c",
      `cp ${CLIENTS}${PROGRAM} ${NAME}/ && exec node ${NAME}/${PROGRAM} "$@"`,
      "sh",
      NAME,
      String(port),
      CALLBACK.href,
      SECRET,
    ],
    cwd,
  }));
  await waitFor(() => provider.output().includes("listening"), {
    what: `${NAME} listens`,
  });
  const oidc = new OidcClient({
    issuer: new URL(`http://127.0.0.1:${port}`),
    clientId: "gateway-console",
    clientSecret: SECRET,
    allowed: ["@example.org"],
    reauthentication: "checked",
    scope: "openid email groups",
    groups: { claim: "groups", rules },
    name: "Example",
  });
  const site = starting.use(await startConsole({ oidc }));
  const running = starting.move();
  return { site, [Symbol.asyncDispose]: () => running.disposeAsync() };
}

/** Where the console sends a browser that wants to sign in. */
async function leave(client: TestClient, path: string): Promise<URL> {
  const { headers, text } = await client.get(path);
  return new URL(headers.get("location") ?? assert.fail(text));
}

const comeBack = (client: TestClient, { pathname, search }: URL) =>
  client.get(pathname + search);

try {
  await installOnce(NAME, INSTALL, { cwd });
  addTests();
  addGroupTest();
} catch (error) {
  const reason = String(error).trim().split("\n").at(-1);
  print(`Left out: ${NAME} ${VERSION}: ${reason}`);
}

function addTests(): void {
  Deno.test(`people sign in through ${NAME} ${VERSION}, and prove again who they are`, async () => {
    await using both = await startBoth();
    const { site } = both;
    const client = site.client();
    const visitor = new ProviderVisitor();
    const ada = "ada@example.org";
    const start = await leave(client, "/sign-in/oidc");
    const answer = await comeBack(client, await visitor.signIn(start, ada));
    assert.equal(answer.status, 303, answer.text);
    assert.match((await client.get("/account")).text, /ada@example\.org/);
    const create = (digit: string) =>
      client.post("/keys/new", keyForm("New", { nonce: digit.repeat(43) }));
    assert.equal((await create("1")).status, 201);
    const ownerId = await site.deps.owners.find(ada) ?? assert.fail(ada);
    const [session] = await site.deps.sessions.list(ownerId);
    await site.deps.sessions.update(session?.id ?? "", { checkedAtMs: 0 });
    assert.equal((await create("2")).status, 401, "an hour has passed");
    const again = await leave(client, "/sign-in/oidc?again=1");
    const back = await comeBack(client, await visitor.signIn(again, ada));
    assert.equal(back.status, 303, back.text);
    assert.equal((await create("3")).status, 201);
  });

  Deno.test(`whom ${NAME} does not vouch for, or the console does not know, is refused`, async () => {
    await using both = await startBoth();
    const cases = [
      { address: "unverified@example.org", says: /has not verified/ },
      { address: "eve@elsewhere.example", says: /may not sign in here/ },
    ];
    for (const { address, says } of cases) {
      const client = both.site.client();
      const start = await leave(client, "/sign-in/oidc");
      const visitor = new ProviderVisitor();
      const answer = await comeBack(
        client,
        await visitor.signIn(start, address),
      );
      assert.equal(answer.status, 403, address);
      assert.match(answer.text, says);
      assert.equal((await client.get("/keys")).status, 302, address);
    }
  });
}

function addGroupTest(): void {
  Deno.test(`the groups that ${NAME} names are roles in a project and of an operator`, async () => {
    const rules = new Map<string, Grant[]>();
    await using both = await startBoth(rules);
    const { deps } = both.site;
    const actor = {
      by: "test",
      ip: "",
      ownerId: null,
      as: "operator",
    } as const;
    const input = { name: "Search", adminId: null };
    const { id: projectId } = await deps.projects.create(actor, input);
    await deps.owners.giveRole(await deps.owners.ensure("op@example.org"));
    rules.set("search", [{ projectId, role: "member" }]);
    rules.set("leads", [{ projectId, role: "admin" }, "operator"]);
    const roles = { search: "member", leads: "admin" };
    for (const [group, role] of Object.entries(roles)) {
      const address = `ada+${group}@example.org`;
      const client = both.site.client();
      const start = await leave(client, "/sign-in/oidc");
      const visitor = new ProviderVisitor();
      await comeBack(client, await visitor.signIn(start, address));
      const ownerId = await deps.owners.find(address) ?? assert.fail(address);
      const membership = await deps.projects.membership(projectId, ownerId);
      assert.equal(membership?.role, role);
      const account = await deps.owners.read(ownerId);
      assert.equal(account?.isOperator, group === "leads");
    }
  });
}
