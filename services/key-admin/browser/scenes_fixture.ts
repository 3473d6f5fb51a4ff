import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import type { KeyRecord } from "@gateway/shared/keys/record";
import {
  makeKey,
  markUsed,
  openWindow,
  press,
  signedIn,
  type Site,
  title,
  useKey,
  type Visit,
} from "./site_fixture.ts";
import { PASSWORD } from "../console_fixture.ts";
import { takeRate } from "../domain/sign_in/attempts.ts";
import { linkPath } from "../domain/sign_in/links.ts";
import { totpCode } from "../domain/sign_in/totp.ts";
import { CREATION_RATE } from "../web/key_requests.tsx";

/** Who looks at the console, and what there is to see. */
export interface Stage {
  site: Site;
  /** An owner with keys in every state and a month of use. */
  owner: Page;
  ownerId: string;
  /** A key of the owner that is in use. */
  key: KeyRecord;
  /** A key of the owner that never was. */
  unused: KeyRecord;
  /** An owner who has nothing yet. */
  newcomer: Page;
  newcomerId: string;
  stranger: Page;
}

/** A page, or a state of one, and the way there. Gives the page that shows it. */
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

/** Fills the console with what it is made for. */
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
    unused: await makeKey(site, owner.ownerId, { description: "Not used yet" }),
    newcomer: newcomer.page,
    newcomerId: newcomer.ownerId,
    stranger: stranger.page,
  };
}

async function makeFilledKey(
  site: Site,
  ownerId: string,
  n: number,
  description: string,
): Promise<KeyRecord> {
  const key = await makeKey(site, ownerId, {
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
  const uses: Promise<void>[] = [];
  for (let ago = n; ago < DAYS_OF_USE * 24; ago += ago < 48 ? 1 : 6) {
    const requests = Math.round(60 * (1 + Math.sin(ago / 4 + n)));
    uses.push(useKey(site, { ownerId, keyId }, {
      atMs: Date.now() - ago * HOUR_MS,
      requests,
      errors: Math.round(requests / 30),
      promptTokens: requests * 812,
      completionTokens: requests * 344,
    }));
  }
  await Promise.all(uses);
  await markUsed(site, { ownerId, keyId }, Date.now() - n * HOUR_MS);
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
  at("keys-search", () => "/keys?search=production"),
  at("keys-nothing", () => "/keys?search=zzz"),
  at("keys-disabled", () => "/keys?filter=disabled"),
  at("new", () => "/keys/new"),
  ["new-errors", newWithErrors],
  ["once", once],
  at("key", ({ key }) => `/keys/${key.id}`),
  at("key-30d", ({ key }) => `/keys/${key.id}?range=30d`),
  at("key-unused", ({ unused }) => `/keys/${unused.id}`),
  at("edit", ({ key }) => `/keys/${key.id}/edit`),
  ["changed-meanwhile", changedMeanwhile],
  at("ask-disable", ({ key }) => `/keys/${key.id}/ask/disable`),
  at("ask-rotate", ({ key }) => `/keys/${key.id}/ask/rotate`),
  ["rotated", rotated],
  at("ask-delete", ({ unused }) => `/keys/${unused.id}/ask/delete`),
  at("usage", () => "/usage"),
  at("usage-30d", () => "/usage?range=30d"),
  ["usage-table", usageTable],
  at("audit", () => "/audit"),
  at("account", () => "/account"),
  ["account-refused", accountRefused],
  at("second-factor", () => "/account/second-factor"),
  ["second-factor-refused", (stage) => switchOn(stage, () => "000000")],
  ["recovery-codes", recoveryCodes],
  at("account-two-step", () => "/account"),
  at("confirm", () => "/confirm"),
  at("not-found", () => "/nothing"),
  ["forbidden", forbidden],
  ["too-many", tooMany],
  ["sign-in", ({ stranger }) => show(stranger, "/sign-in")],
  ["sign-in-refused", signInRefused],
  ["set-up", (stage) => link(stage, "set_up")],
  ["invitation", (stage) => link(stage, "invite")],
  ["reset", (stage) => link(stage, "reset")],
  ["reset-refused", resetRefused],
  ["unavailable", unavailable],
];

async function newWithErrors({ owner }: Stage): Promise<Page> {
  await owner.goto("/keys/new");
  // Turned round by a bidirectional character, which only the server looks for.
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

async function changedMeanwhile(
  { owner, site, ownerId, key }: Stage,
): Promise<Page> {
  await owner.goto(`/keys/${key.id}/edit`);
  const actor = { by: EMAIL, ip: "192.0.2.7" };
  const target = { ownerId, keyId: key.id, version: null, actor };
  await site.deps.keys.edit(target, { description: `${key.description}!` });
  await press(owner, "Save changes");
  await owner.getByText("changed in the meantime").waitFor();
  return owner;
}

async function rotated({ owner, site, ownerId }: Stage): Promise<Page> {
  const { id } = await makeKey(site, ownerId, { description: "To rotate" });
  await owner.goto(`/keys/${id}/ask/rotate`);
  await press(owner, "Create the new key");
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
  await owner.getByText("The password is not right").waitFor();
  return owner;
}

async function switchOn(
  { owner }: Stage,
  codeOf: (secret: string) => string,
): Promise<Page> {
  await owner.goto("/account/second-factor");
  const secret = await owner.locator("#secret").textContent() ?? "";
  await owner.getByLabel("Type the code").fill(
    codeOf(secret),
  );
  await owner.getByLabel("Your password").fill(PASSWORD);
  await press(owner, "Turn on");
  return owner;
}

async function recoveryCodes(stage: Stage): Promise<Page> {
  const step = Math.floor(stage.site.deps.now() / TOTP_STEP_MS);
  await switchOn(stage, (secret) => totpCode(secret, step));
  await title(stage.owner, "Store your recovery codes");
  return stage.owner;
}

/** A form of an earlier session. */
async function forbidden({ owner }: Stage): Promise<Page> {
  await owner.goto("/usage");
  await owner.evaluate(
    "document.querySelector('[action=\"/sign-out\"] [name=form_token]')" +
      ".value = 'of an earlier session'",
  );
  await press(owner, "Sign out");
  await owner.getByText("403").waitFor();
  return owner;
}

async function tooMany({ newcomer, newcomerId, site }: Stage): Promise<Page> {
  await newcomer.goto("/keys/new");
  for (let n = 0; n < CREATION_RATE.count; n++) {
    await takeRate(site.deps.redis, `create ${newcomerId}`, CREATION_RATE);
  }
  await newcomer.getByLabel("Description").fill("One too many");
  await press(newcomer, "Create key");
  await newcomer.getByText("429").waitFor();
  return newcomer;
}

async function signInRefused({ stranger }: Stage): Promise<Page> {
  await stranger.goto("/sign-in");
  await stranger.getByLabel("E-mail").fill(EMAIL);
  await stranger.getByLabel("Password").fill("not the password");
  await press(stranger, "Sign in");
  await stranger.getByText("is not right").waitFor();
  return stranger;
}

async function link(
  { stranger, site, ownerId }: Stage,
  kind: "set_up" | "invite" | "reset",
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
  // Long enough for the browser, and known to everybody.
  await page.getByLabel("Password").fill("passwordpassword");
  await press(page, "Save and sign in");
  await page.getByRole("alert").waitFor();
  return page;
}

/** Redis stands still until the answer is there. */
async function unavailable({ stranger, newcomer, site }: Stage): Promise<Page> {
  await stranger.close();
  site.redis.freeze();
  try {
    await newcomer.goto("/keys");
  } finally {
    site.redis.thaw();
  }
  await newcomer.getByText("503").waitFor();
  return newcomer;
}
