/** Commands over the admin API of a gateway elsewhere: the same answers as over Redis. */
import assert from "node:assert/strict";
import { outcomeOf } from "../cli.ts";
import { listen, MAKER } from "../api/admin_fixture.ts";
import { startConsole, type TestConsole } from "../console_fixture.ts";
import {
  ADMIN_SCOPES,
  type AdminScope,
} from "../domain/admin_keys/admin_key_store.ts";
import { freePort } from "../redis_fixture.ts";
import { run } from "../web/running_fixture.ts";

/** A console that listens, as commands reach it with an admin key. */
async function startRemote(scopes: readonly AdminScope[] = ADMIN_SCOPES) {
  const site = await startConsole({ redisUser: "key-admin" });
  const server = listen(site);
  const { origin } = server;
  const wanted = { description: "CI", scopes: [...scopes], expiresAtMs: null };
  const { value } = await site.deps.adminKeys.create(wanted, MAKER);
  const variables = { GATEWAY_ADMIN_URL: origin, GATEWAY_ADMIN_KEY: value };
  return {
    site,
    variables,
    ask: (line: string, changed: Record<string, string> = {}) =>
      outcomeOf(line.split(" "), { ...variables, ...changed }),
    [Symbol.asyncDispose]: async () => {
      await server[Symbol.asyncDispose]();
      await site[Symbol.asyncDispose]();
    },
  };
}

const keyOf = async ({ deps }: TestConsole, email: string) => {
  const ownerId = await deps.owners.ensure(email);
  const page = { filter: "all" as const, search: "", after: "", rows: 9 };
  const { rows } = await deps.keys.list(ownerId, { ...page, day: "20990101" });
  return { ownerId, keyId: rows[0]?.key.id ?? "" };
};

/** Command lines in order, and what they print; `:key` is Ada's key. */
const LINES: readonly [line: string, says: RegExp][] = [
  [
    "keys create --description Ci --owner ada@example.org --rpm 60 --budget-day 2.50 --models small-1 --expires 2099-01-31",
    /key +sk-Cg\w+\n\nStore the key now.*\nThe owner ada@example\.org is new/,
  ],
  ["keys list --owner ada@example.org", /enabled.* Ci$/m],
  ["keys show :key", /limits +requests_per_minute 60, budget_day 2\.5/],
  ["keys edit :key --tpm 5 --allowed-cidrs 10.0.0.0/8", /10\.0\.0\.0\/8/],
  ["keys disable :key --stop-running", /state +disabled/],
  ["keys enable :key --json", /^\{"id":"key_.*"state":"enabled"/],
  ["keys rotate :key --old now", /The old key stops working immediately/],
  ["keys delete :key", /state +deleted/],
  ["owners invite bob@example.org", /url +http.*\n\n.*within 3 days/],
  ["owners list --search bob", /bob@example\.org/],
  ["owners limits bob@example.org --concurrency 4", /concurrency 4/],
  ["owners reset bob@example.org", /within 1 hour/],
  ["owners grant bob@example.org", /done +make_operator/],
  ["owners disable ada@example.org --stop-running", /done +disable/],
  ["owners enable ada@example.org", /done +enable/],
  ["projects create --name Shop --admin bob@example.org", /id +prj_/],
  ["projects add Shop --member ada@example.org", /ada@example\.org +member/],
  ["projects role Shop --member ada@example.org --role admin", /ada.* admin/],
  ["projects limits Shop --rpm 7", /requests_per_minute 7/],
  ["projects remove Shop --member ada@example.org", /bob@example\.org +admin$/],
  ["projects disable Shop", /state +disabled/],
  ["models", /^MODEL +SCOPE.*\nsmall-1|small-1/m],
  ["models disable small-1 --reason Slow", /undone +false/],
  ["models enable small-1", /undone +true/],
  ["requests --from 1h", /No requests found/],
  ["admin-keys create --description CD --admin-scopes keys", /sk-admin-/],
  ["admin-keys list", /CD/],
];

Deno.test("commands work over the admin API as over Redis", async () => {
  await using remote = await startRemote();
  const { site, ask } = remote;
  for (const [line, says] of LINES) {
    const keyId = line.includes(":key")
      ? (await keyOf(site, "ada@example.org")).keyId
      : "";
    const { code, text } = await ask(line.replace(":key", keyId));
    assert.equal(code, 0, `${line}: ${text}`);
    assert.match(text, says, `${line}: ${text}`);
  }
  const ids = await keyOf(site, "ada@example.org");
  const request = run(site, ids);
  assert.match((await ask("running")).text, /ada@example\.org +small-1/);
  const { text } = await ask(`running stop ${request}`);
  assert.match(text, /stopped +true/);
});

/** Where nothing listens. */
const ELSEWHERE = `http://127.0.0.1:${freePort()}`;
const STRANGER = `sk-admin-${"a".repeat(43)}`;

/** Command lines with a key of the scope `keys`, and what they end with. */
const MISTAKES: readonly {
  line: string;
  changed?: Record<string, string>;
  code: number;
  says: RegExp;
}[] = [
  { line: "keys show key_x", code: 1, says: /key does not exist/ },
  {
    line: "keys list --after x",
    code: 2,
    says: /--after: The cursor is invalid/,
  },
  {
    line: "requests --from 1h",
    code: 77,
    says: /lacks the scope usage: it has keys/,
  },
  { line: "owners set-up", code: 1, says: /"owners set-up" needs Redis/ },
  { line: "ledger check", code: 1, says: /"ledger check" needs Redis/ },
  {
    line: "running",
    changed: { GATEWAY_ADMIN_KEY: STRANGER },
    code: 77,
    says: /unknown, deleted or expired/,
  },
  {
    line: "running",
    changed: { GATEWAY_ADMIN_URL: ELSEWHERE },
    code: 69,
    says: /^Cannot reach http/,
  },
  {
    line: "running",
    changed: { GATEWAY_ADMIN_URL: "http://a.example" },
    code: 78,
    says: /GATEWAY_ADMIN_URL=.*\n.*expected the origin of a console/,
  },
  {
    line: "running",
    changed: { GATEWAY_ADMIN_KEY: "sk-Cg" },
    code: 78,
    says: /GATEWAY_ADMIN_KEY.*\n.*expected an admin key/,
  },
  {
    line: "running",
    changed: { GATEWAY_ADMIN_KEY: "" },
    code: 78,
    says: /GATEWAY_ADMIN_KEY is needed with/,
  },
];

Deno.test("commands over the admin API say what went wrong, with exit codes", async () => {
  await using remote = await startRemote(["keys"]);
  const { ask, variables } = remote;
  for (const { line, changed, code, says } of MISTAKES) {
    const outcome = await ask(line, changed);
    assert.equal(outcome.code, code, `${line}: ${outcome.text}`);
    assert.match(outcome.text, says, `${line}: ${outcome.text}`);
    assert.ok(!outcome.text.includes(variables.GATEWAY_ADMIN_KEY));
  }
});

Deno.test("what answers but is no admin API is named", async () => {
  await using server = Deno.serve(
    { hostname: "127.0.0.1", port: 0, onListen: () => {} },
    () => new Response("<html>Hello</html>", { status: 502 }),
  );
  const { code, text } = await outcomeOf(["running"], {
    GATEWAY_ADMIN_URL: `http://127.0.0.1:${server.addr.port}`,
    GATEWAY_ADMIN_KEY: STRANGER,
  });
  assert.equal(code, 69);
  assert.match(text, /answered 502 without an error of the admin API/);
});
