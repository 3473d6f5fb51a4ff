import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import type { KeyRecord } from "@gateway/shared/keys/record";
import {
  openWindow,
  press,
  signedIn,
  type Site,
  title,
  useKey,
  type Visit,
} from "./site_fixture.ts";
import { PASSWORD, storedKey } from "../console_fixture.ts";
import { linkPath } from "../domain/sign_in/links.ts";
import { totpCode } from "../domain/sign_in/totp.ts";

/** The users of the console and its data. */
export interface Stage {
  site: Site;
  /** An owner with keys in every state and a month of use. */
  owner: Page;
  ownerId: string;
  /** A key of the owner that is in use. */
  key: KeyRecord;
  /** A key of the owner that was never used. */
  unused: KeyRecord;
  /** An owner without keys. */
  newcomer: Page;
  stranger: Page;
}

/** A page, or a state of one, and how to reach it. Returns the page that shows it. */
export type Scene = [name: string, play: (stage: Stage) => Promise<Page>];

const EMAIL = "ada.lovelace@example.org";
const OTHER_DEVICE = {
  ip: "192.0.2.7",
  userAgent: "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0) Safari/605.1",
};
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
const DAYS_OF_USE = 30;
const TOTP_STEP_MS = 30_000;
const DESCRIPTIONS = [
  "Support assistant, production",
  "Nightly summaries of long meetings and everything that was said in them",
  "Staging",
  "数据分析服务",
  "Mobile backend 🔑",
  "Search indexer",
];

/** Fills the console with owners, keys and usage. */
export async function setStage(visit: Visit): Promise<Stage> {
  const { site } = visit;
  const owner = await signedIn(visit, EMAIL);
  const newcomer = await signedIn(visit, "grace@example.org");
  const stranger = await openWindow(visit);
  await site.deps.sessions.start(owner.ownerId, OTHER_DEVICE);
  const keys: KeyRecord[] = [];
  for (const [n, description] of DESCRIPTIONS.entries()) {
    keys.push(await makeFilledKey(site, owner.ownerId, n, description));
  }
  const [key] = keys;
  return {
    site,
    owner: owner.page,
    ownerId: owner.ownerId,
    key: key ?? assert.fail("no key"),
    unused: await storedKey(site, owner.ownerId, {
      description: "Not used yet",
    }),
    newcomer: newcomer.page,
    stranger: stranger.page,
  };
}

async function makeFilledKey(
  site: Site,
  ownerId: string,
  n: number,
  description: string,
): Promise<KeyRecord> {
  const key = await storedKey(site, ownerId, {
    description,
    models: n % 3 === 0 ? ["neutral-3.7-plus"] : [],
    limits: {
      requestsPerMinute: n * 60,
      tokensPerMinute: 0,
      tokensPerDay: n * 100_000,
      concurrency: 0,
    },
    expiresAtMs: n % 4 === 1 ? Date.now() + n * DAY_MS : null,
  });
  const keyId = key.id;
  const hours = Array.from({ length: DAYS_OF_USE * 24 }, (_, ago) => ago)
    .filter((ago) => ago >= n && (ago < 48 || ago % 6 === 0));
  const use = (ago: number) => {
    const requests = Math.round(60 * (1 + Math.sin(ago / 4 + n)));
    return useKey(site, { ownerId, keyId }, {
      atMs: Date.now() - ago * HOUR_MS,
      ...{ requests, errors: Math.round(requests / 30) },
      ...{ promptTokens: requests * 812, completionTokens: requests * 344 },
    });
  };
  // Day by day: one hour at a time would take seconds, all at once the deadlines of
  // Redis. The latest comes last, as the time of the last use.
  const days = Map.groupBy(hours.reverse(), (ago) => Math.floor(ago / 24));
  for (const day of days.values()) await Promise.all(day.map(use));
  await use(n);
  if (n % 5 === 2) {
    const actor = { by: EMAIL, ip: "192.0.2.7" };
    await site.deps.keys.disable({ ownerId, keyId, version: null, actor });
  }
  return key;
}

const show = async (page: Page, path: string): Promise<Page> => {
  await page.goto(path);
  return page;
};

/** A page of the owner by its path. */
const at = (name: string, path: (stage: Stage) => string): Scene => [
  name,
  (stage) => show(stage.owner, path(stage)),
];

/** Every page and every state of one, in an order in which each can be reached. */
export const SCENES: readonly Scene[] = [
  ["keys-empty", ({ newcomer }) => show(newcomer, "/keys")],
  ["usage-empty", ({ newcomer }) => show(newcomer, "/usage")],
  ["audit-empty", ({ newcomer }) => show(newcomer, "/audit?action=key.")],
  at("keys", () => "/keys"),
  at("keys-nothing", () => "/keys?search=zzz"),
  at("new", () => "/keys/new"),
  ["new-errors", newWithErrors],
  ["once", once],
  at("key", ({ key }) => `/keys/${key.id}`),
  at("key-unused", ({ unused }) => `/keys/${unused.id}`),
  at("edit", ({ key }) => `/keys/${key.id}/edit`),
  at("ask-disable", ({ key }) => `/keys/${key.id}/ask/disable`),
  at("ask-rotate", ({ key }) => `/keys/${key.id}/ask/rotate`),
  at("ask-delete", ({ unused }) => `/keys/${unused.id}/ask/delete`),
  at("usage", () => "/usage"),
  at("usage-30d", () => "/usage?range=30d"),
  ["usage-table", usageTable],
  at("audit", () => "/audit"),
  at("account", () => "/account"),
  ["account-refused", accountRefused],
  at("second-factor", () => "/account/second-factor"),
  ["recovery-codes", recoveryCodes],
  at("account-two-step", () => "/account"),
  at("confirm", () => "/confirm"),
  at("not-found", () => "/nothing"),
  ["sign-in", ({ stranger }) => show(stranger, "/sign-in")],
  ["sign-in-refused", signInRefused],
  ["set-up", (stage) => link(stage, "set_up")],
  ["reset-refused", resetRefused],
  ["unavailable", unavailable],
];

async function newWithErrors({ owner }: Stage): Promise<Page> {
  await owner.goto("/keys/new");
  // With a text direction mark, which only the server checks.
  await owner.getByLabel("Description").fill("gpj.\u202Eexe");
  await owner.getByLabel("Requests per minute").fill("999999999999");
  await owner.locator("#models").fill("no such; model");
  for (const scope of await owner.getByRole("checkbox").all()) {
    await scope.uncheck();
  }
  await press(owner, "Create key");
  await owner.locator("[aria-invalid=true]").first().waitFor();
  return owner;
}

async function once({ owner }: Stage): Promise<Page> {
  await owner.goto("/keys/new");
  await owner.getByLabel("Description").fill("Shown once");
  await press(owner, "Create key");
  await title(owner, "Store your key now");
  return owner;
}

async function usageTable({ owner }: Stage): Promise<Page> {
  await owner.goto("/usage");
  await owner.getByText("Show as a table").click();
  await owner.getByRole("table").waitFor();
  return owner;
}

async function accountRefused({ owner }: Stage): Promise<Page> {
  await owner.goto("/account");
  await owner.getByLabel("Current password").fill("not the password");
  await owner.getByLabel("New password").fill("some other long password");
  await press(owner, "Change password");
  await owner.getByText("The password is wrong").waitFor();
  return owner;
}

async function recoveryCodes({ owner, site }: Stage): Promise<Page> {
  await owner.goto("/account/second-factor");
  const secret = await owner.locator("#secret").textContent() ?? "";
  const step = Math.floor(site.deps.now() / TOTP_STEP_MS);
  await owner.getByLabel("Type the code").fill(totpCode(secret, step));
  await owner.getByLabel("Your password").fill(PASSWORD);
  await press(owner, "Turn on");
  await title(owner, "Store your recovery codes");
  return owner;
}

async function signInRefused({ stranger }: Stage): Promise<Page> {
  await stranger.goto("/sign-in");
  await stranger.getByLabel("E-mail").fill(EMAIL);
  await stranger.getByLabel("Password").fill("not the password");
  await press(stranger, "Sign in");
  await stranger.getByText("is wrong").waitFor();
  return stranger;
}

async function link(
  { stranger, site, ownerId }: Stage,
  kind: "set_up" | "reset",
): Promise<Page> {
  const { links, owners } = site.deps;
  const secret = await links.make(
    kind === "set_up"
      ? { kind, ownerId: await owners.first() }
      : { kind, ownerId, email: EMAIL },
  );
  return await show(stranger, linkPath(secret));
}

async function resetRefused(stage: Stage): Promise<Page> {
  const page = await link(stage, "reset");
  // Long enough for the browser, but easy to guess.
  await page.getByLabel("Password").fill("passwordpassword");
  await press(page, "Save and sign in");
  await page.getByRole("alert").waitFor();
  return page;
}

/** Redis is frozen until the response has arrived. */
async function unavailable({ stranger, newcomer, site }: Stage): Promise<Page> {
  await stranger.close();
  await site.redis.freeze();
  try {
    await newcomer.goto("/keys");
  } finally {
    site.redis.thaw();
  }
  await newcomer.getByText("503").waitFor();
  return newcomer;
}
