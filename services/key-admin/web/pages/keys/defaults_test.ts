/** The defaults of new keys: who sets them, and where they count. */
import assert from "node:assert/strict";
import { startConsole } from "../../../console_fixture.ts";
import { limitsOf } from "../../../domain/keys/settings.ts";
import { entries } from "../../../routes_fixture.ts";

const ADA = "ada@example.org";
const FORM = {
  ...limitsOf(() => ""),
  requestsPerMinute: "60",
  which_models: "these",
  models: ["small-1"],
  expiryDays: "90",
};
const DAY_MS = 86_400_000;

Deno.test("the form of a new key begins with the defaults of its account", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const ada = await site.signedIn(ADA);
  const ownerId = await site.deps.owners.find(ADA) ?? assert.fail();
  const saved = await ada.post("/keys/defaults", FORM);
  assert.equal(saved.status, 303, saved.text);
  const page = (await ada.get("/keys/new")).text;
  const day = new Date(site.clock.nowMs + 90 * DAY_MS).toISOString();
  assert.match(page, new RegExp(`name="expires"[^>]*${day.slice(0, 10)}`));
  assert.match(page, /name="requestsPerMinute"[^>]*value="60"/);
  assert.match(page, /value="small-1" name="models" checked/);
  const again = (await ada.get("/keys/defaults")).text;
  assert.match(again, /name="expiryDays"[^>]*value="90"/);
  const last = (await entries(site, ownerId)).at(-1);
  assert.equal(last?.action, "account.key_defaults_changed");
  assert.equal(
    last?.detail,
    "requests per minute 60, models small-1, expires after 90 days",
  );
});

const MISTAKES: readonly Record<string, string | string[]>[] = [
  { expiryDays: "-1" },
  { expiryDays: "1.5" },
  { expiryDays: "3651" },
  { requestsPerMinute: "1000001" },
  { models: ["gone-1"] },
  { models: [] },
];

Deno.test("mistakes in defaults are marked, and members of a project set none", async () => {
  await using site = await startConsole({ redisUser: "key-admin" });
  const ada = await site.signedIn(ADA);
  const ownerId = await site.deps.owners.find(ADA) ?? assert.fail();
  for (const mistake of MISTAKES) {
    const answer = await ada.post("/keys/defaults", { ...FORM, ...mistake });
    assert.equal(answer.status, 400, JSON.stringify(mistake));
    assert.match(answer.text, /class="help bad"/, JSON.stringify(mistake));
  }
  assert.equal(await site.deps.defaults.read(ownerId), null);
  const actor = { by: "test", ip: "", ownerId: null, as: "operator" } as const;
  const { projects, defaults } = site.deps;
  const input = { name: "Search", adminId: null };
  const { id } = await projects.create(actor, input);
  const member = { memberId: ownerId, role: "member" } as const;
  await projects.addOwner(actor, id, member);
  const path = `/projects/${id}/keys/defaults`;
  assert.equal((await ada.get(path)).status, 409);
  assert.equal((await ada.post(path, FORM)).status, 409);
  assert.equal(await defaults.read(id), null);
  await projects.setRole(actor, id, { memberId: ownerId, role: "admin" });
  assert.equal((await ada.post(path, FORM)).status, 303);
  assert.equal((await defaults.read(id))?.expiryDays, 90);
});
