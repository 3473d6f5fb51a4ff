/** Every page of the console, in each state that looks different. */
import type { Page } from "playwright-core";
import { codeOf } from "../console_fixture.ts";
import { linkPath } from "../domain/sign_in/links.ts";
import { PASSWORD } from "../forms_fixture.ts";
import { tell, tellWaiting } from "../reports_fixture.ts";
import { EMAIL, OPERATOR_EMAIL, type Stage } from "./stage_fixture.ts";

/** A page, or a state of one. */
export interface Scene {
  name: string;
  /** Leads a user there. Returns the page that shows it. */
  play: (stage: Stage) => Promise<Page>;
}

/** A user, and what this user does on a page. */
interface Play {
  who?: "owner" | "newcomer" | "stranger" | "operator";
  /** Text by field. */
  fill?: Readonly<Record<string, string>>;
  /** The selector of what is clicked. */
  click?: string;
  /** A text that the page shows afterwards. */
  shows?: string;
}

const OPERATOR: Play = { who: "operator" };

/** A page of the owner or of another user, and what this user does there. */
const at = (
  name: string,
  path: string | ((stage: Stage) => string | Promise<string>),
  { who = "owner", fill = {}, click, shows }: Play = {},
): Scene => ({
  name,
  play: async (stage) => {
    const page = stage[who];
    await page.goto(typeof path === "string" ? path : await path(stage));
    for (const [field, text] of Object.entries(fill)) {
      await page.locator(`#${field}`).fill(text);
    }
    if (click !== undefined) await page.locator(click).click();
    if (shows !== undefined) await page.getByText(shows).first().waitFor();
    return page;
  },
});

/** A page of a key of the owner. */
const atKey = (name: string, page = "", which: "key" | "limited" = "key") =>
  at(name, (stage) => `/keys/${stage[which].id}${page}`);

/**
 * Every page, and every state that looks different, in an order in which each can be
 * reached.
 */
export const SCENES: readonly Scene[] = [
  at("keys-empty", "/keys", { who: "newcomer" }),
  at("usage-empty", "/usage", { who: "newcomer" }),
  at("keys", "/keys"),
  at("new", "/keys/new"),
  at("new-errors", "/keys/new", {
    fill: {
      // It has a text direction mark, which only the server checks.
      description: "gpj.\u202Eexe",
      requestsPerMinute: "999999999999",
    },
    click: "main button",
    shows: "At most 1,000,000",
  }),
  atKey("edit", "/edit", "limited"),
  at("once", "/keys/new", {
    fill: { description: "Shown once" },
    click: "main button",
    shows: "Store your key now",
  }),
  atKey("key"),
  atKey("key-unused", "", "limited"),
  at(
    "keys-disable",
    ({ key, limited }) => `/keys/disable?keys=${key.id}&keys=${limited.id}`,
  ),
  atKey("ask-rotate", "/ask/rotate"),
  atKey("ask-delete", "/ask/delete", "limited"),
  at("try", "/try"),
  at("usage", "/usage", {
    click: "main summary >> text=Show as a table",
    shows: "Hour from",
  }),
  at("usage-by-model", "/usage?range=30d&by=model"),
  at("usage-by-key", "/usage?range=7d&by=key&zone=Europe/Berlin"),
  at("usage-refused", "/usage?from=1999-07-15&to=2026-11-28&by=model"),
  at("requests", "/requests"),
  at("requests-refused", "/requests?from=yesterday"),
  at("running", "/requests/running"),
  at("running-empty", "/requests/running", { who: "newcomer" }),
  at("audit", "/audit"),
  // The link unfolds what it leads to.
  at("reference", "/reference", {
    click: "[href='#SystemMessage']",
    shows: "developer",
  }),
  at("account", "/account"),
  at("second-factor", "/account/second-factor"),
  { name: "recovery-codes", play: recoveryCodes },
  at("account-two-step", "/account"),
  at("projects", "/projects"),
  at("project-keys", ({ projectId }) => `/projects/${projectId}/keys`),
  at("project-switcher", ({ projectId }) => `/projects/${projectId}/usage`, {
    click: ".switcher summary",
    shows: "All projects",
  }),
  at("project-members", ({ projectId }) => `/projects/${projectId}/members`),
  at(
    "project-remove",
    ({ projectId }) => `/projects/${projectId}/members`,
    { click: "main a.bad >> nth=1", shows: "They can do nothing" },
  ),
  at("project-new", "/projects/new", OPERATOR),
  at("people-projects", "/people/projects?sort=-cost&days=30", OPERATOR),
  at("people-project", ({ projectId }) => `/people/projects/${projectId}`, {
    ...OPERATOR,
    click: "summary >> text=Disable",
    shows: "Every request",
  }),
  at("people", "/people", OPERATOR),
  at("people-most", "/people?sort=-cost&days=30", OPERATOR),
  at("people-new", "/people/new", OPERATOR),
  // The scene before has opened the form.
  { name: "people-link", play: createLink },
  at("people-keys", "/people/keys", OPERATOR),
  at("people-usage", "/people/usage?range=30d&by=account", OPERATOR),
  at("people-requests", "/people/requests", OPERATOR),
  at("people-running", "/people/running", OPERATOR),
  at("people-running-stop", "/people/running", {
    ...OPERATOR,
    click: "main a.bad >> nth=0",
    shows: "Stop this request?",
  }),
  at("admin-keys-empty", "/people/admin-keys", OPERATOR),
  at("admin-keys-new", "/people/admin-keys/new", OPERATOR),
  // The scene before has opened the form.
  { name: "admin-keys-created", play: createAdminKey },
  at("admin-keys", async (stage) => {
    await makeAdminKeys(stage);
    return "/people/admin-keys";
  }, OPERATOR),
  at("admin-keys-delete", "/people/admin-keys", {
    ...OPERATOR,
    click: "main a.bad >> nth=0",
    shows: "Delete this admin key?",
  }),
  at(
    "person-key",
    ({ ownerId, key }) => `/people/${ownerId}/keys/${key.id}`,
    OPERATOR,
  ),
  at(
    "person-key-disable",
    ({ ownerId, key }) => `/people/${ownerId}/keys/${key.id}/ask/disable`,
    OPERATOR,
  ),
  at("person", ({ ownerId }) => `/people/${ownerId}`, {
    ...OPERATOR,
    click: "summary >> text=Remove second factor",
    shows: "Make sure",
  }),
  at("models", async (stage) => {
    await tellOfModels(stage);
    return "/models";
  }, OPERATOR),
  at("models-sorted", "/models?sort=status", OPERATOR),
  at(
    "models-change",
    "/models/change?model=small-1&backend=openai-1",
    OPERATOR,
  ),
  at("models-disable", "/models/change?model=small-1", OPERATOR),
  at("factor-removed", async ({ site: { deps: { owners } }, ownerId }) => {
    await owners.disableTotp(ownerId, OPERATOR_EMAIL);
    return "/usage";
  }),
  at("confirm", async ({ ownerId, site: { deps: { sessions } } }) => {
    for (const { id } of await sessions.list(ownerId)) {
      await sessions.update(id, { checkedAtMs: 0 });
    }
    return "/keys/new";
  }, {
    fill: { description: "Late" },
    click: ".primary",
    shows: "Password of",
  }),
  at("not-found", "/nothing"),
  at("sign-in", "/sign-in", { who: "stranger" }),
  at("sign-in-refused", "/sign-in", {
    who: "stranger",
    fill: { email: EMAIL, password: "not the password" },
    click: "main button",
    shows: "is wrong",
  }),
  at(
    "reset-refused",
    async ({ ownerId, site: { deps: { links } } }) =>
      linkPath(await links.make({ kind: "reset", ownerId })),
    {
      who: "stranger",
      // It is long enough for the browser, but easy to guess.
      fill: { new_password: "passwordpassword" },
      click: "main button",
      shows: "too common",
    },
  ),
  { name: "unavailable", play: unavailable },
];

/** Reports of two workers about servers in all states, most of which are probed. */
async function tellOfModels({ site }: Stage): Promise<void> {
  const used = {
    requests: 12_345,
    failures: 678,
    inFlight: 17,
    firstTokens: [[8, 90], [12, 10]] as [number, number][],
    rates: [[14, 90], [9, 10]] as [number, number][],
  };
  const text =
    "The model server failed: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.15 GiB total capacity; 77.90 GiB already allocated)";
  const model = "neutral-3.7-plus";
  tellWaiting(site, "e1", { model, requests: 1_234, oldestMs: 83_000 });
  const probed = (ageMs: number, { isFailed = false } = {}) => (
    { probe: { ageMs, isFailed } }
  );
  tell(site, "w1", [
    { model, backend: "openai-1", ...used, ...probed(4_000) },
    {
      model,
      backend: "gpu-rack-2-with-a-long-name",
      ...used,
      state: "open",
      openMs: 12_000,
      error: { text, ageMs: 90_000 },
      ...probed(18_000, { isFailed: true }),
    },
    {
      model: "small-1",
      ...used,
      state: "half-open",
      ...probed(30_000, { isFailed: true }),
    },
    { model: "large-1", limitedMs: 20_000, requests: 3, ...probed(59_000) },
    { model: "phi-4", isDrained: true, inFlight: 3, ...probed(120_000) },
    { model: "kimi-k2", isDrained: true },
    { model: "olmo-3-32b", ...probed(7_000) },
    { model: "only-workers-have-it" },
  ]);
  tell(site, "w2", [{ model, backend: "openai-1", ...used }]);
  const actor = { by: OPERATOR_EMAIL, ip: "", ownerId: null };
  const { overrides } = site.deps;
  await overrides.set(
    { what: "drain", model: "kimi-k2", backend: "openai-1" },
    actor,
    "New driver on the racks of the second row, until tomorrow",
  );
  for (const disabled of ["olmo-3-32b", "old-model-2"]) {
    await overrides.set({ what: "disable", model: disabled }, actor, "");
  }
}

async function createLink({ operator }: Stage): Promise<Page> {
  await operator.locator("#email").fill("new@example.org");
  await operator.getByText("Create link").click();
  await operator.getByText("Pass this link on").waitFor();
  return operator;
}

async function createAdminKey({ operator }: Stage): Promise<Page> {
  await operator.locator("#description").fill("Nightly build");
  await operator.locator("input[name=scopes]").first().check();
  await operator.locator("main button.primary").click();
  await operator.getByText("Store the admin key now").waitFor();
  return operator;
}

/** One of all scopes with a long name, and one that has expired. */
async function makeAdminKeys({ site: { deps } }: Stage): Promise<void> {
  const { adminKeys, now } = deps;
  const by = { by: OPERATOR_EMAIL, ip: "", ownerId: null };
  const description =
    "Takes people off board whom the directory has removed, every night at two";
  await adminKeys.create({
    description,
    scopes: ["keys", "accounts", "usage", "models"],
    expiresAtMs: now() + 90 * 86_400_000,
  }, by);
  await adminKeys.create({
    description: "Finance",
    scopes: ["usage"],
    expiresAtMs: now() - 1,
  }, by);
}

async function recoveryCodes({ owner, site }: Stage): Promise<Page> {
  await owner.goto("/account/second-factor");
  const secret = await owner.locator("#secret").textContent() ?? "";
  await owner.locator("#code").fill(codeOf(site, secret));
  await owner.locator("#password").fill(PASSWORD);
  await owner.locator("main button").last().click();
  await owner.getByText("Store your recovery codes").waitFor();
  return owner;
}

/** Redis is frozen until the response has arrived. */
async function unavailable({ stranger, newcomer, site }: Stage): Promise<Page> {
  await stranger.close();
  await site.server.freeze();
  try {
    await newcomer.goto("/keys");
  } finally {
    site.server.thaw();
  }
  await newcomer.getByText("503").waitFor();
  return newcomer;
}
