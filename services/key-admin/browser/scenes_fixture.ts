import assert from "node:assert/strict";
import type { Page } from "playwright-core";
import type { KeyRecord } from "@gateway/shared/keys/record";
import { codeOf, PASSWORD, storedKey, useLimits } from "../console_fixture.ts";
import { linkPath } from "../domain/sign_in/links.ts";
import { openWindow, signedIn, useKey, type Visit } from "./site_fixture.ts";

/** The users of the console and its data. */
export type Stage = Awaited<ReturnType<typeof setStage>>;

/** A page, or a state of one, and how to reach it. Returns the page that shows it. */
export type Scene = [name: string, play: (stage: Stage) => Promise<Page>];

const EMAIL = "ada.lovelace@example.org";
const OTHER_DEVICE = {
  ip: "192.0.2.7",
  userAgent: "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0) Safari/605.1",
};
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
/** Hours ago: each of the last day, and one of each earlier day of a month. */
const HOURS_OF_USE = [
  ...Array.from({ length: 29 }, (_, days) => (29 - days) * 24),
  ...Array.from({ length: 24 }, (_, hours) => 23 - hours),
];
const DESCRIPTIONS = [
  "Support assistant, production",
  "Nightly summaries of long meetings and everything that was said in them",
  "Staging",
  "数据分析服务",
  "Mobile backend 🔑",
];

/** Fills the console with owners, keys and usage. */
export async function setStage(visit: Visit) {
  const { site } = visit;
  const { page: owner, ownerId } = await signedIn(visit, EMAIL);
  const newcomer = await signedIn(visit, "grace@example.org");
  const { page: stranger } = await openWindow(visit);
  await site.deps.sessions.start(ownerId, OTHER_DEVICE);
  const keys: KeyRecord[] = [];
  for (const [n, description] of DESCRIPTIONS.entries()) {
    const limits = { tokensPerMinute: 0, concurrency: 0 };
    keys.push(
      await storedKey(site, ownerId, {
        description,
        models: n === 0 ? ["neutral-3.7-plus"] : [],
        limits: {
          ...n === 0 ? { concurrency: 4, tokensPerMinute: 60_000 } : limits,
          requestsPerMinute: (n + 1) * 60,
          tokensPerDay: n * 100_000,
        },
        expiresAtMs: n === 1 ? Date.now() + DAY_MS : null,
      }),
    );
  }
  const [key = assert.fail(), , disabled = assert.fail(), rotated] = keys;
  await site.deps.owners.setLimits(ownerId, {
    ...{ requestsPerMinute: 50, tokensPerMinute: 200_000 },
    ...{ tokensPerDay: 5_000_000, concurrency: 0 },
  });
  for (const keyId of [key.id, null]) {
    await useLimits(site, { ownerId, keyId }, {
      ...{ requestsAheadMs: 20_000, tokensAheadMs: keyId ? 72_000 : 25_000 },
      ...{ dayTokens: 4_812_345, running: 1 },
    });
  }
  const actor = { by: EMAIL, ip: OTHER_DEVICE.ip };
  const target = { ownerId, keyId: disabled.id, version: null, actor };
  await site.deps.keys.disable(target);
  await site.deps.keys.rotate({ ...target, keyId: rotated?.id ?? "" }, DAY_MS);
  for (const ago of HOURS_OF_USE) {
    const requests = Math.round(60 * (1 + Math.sin(ago / 4)));
    const used = { ownerId, keyId: key.id };
    await useKey(site, used, Date.now() - ago * HOUR_MS, {
      ...{ requests, errors: Math.round(requests / 30) },
      ...{ promptTokens: requests * 812, completionTokens: requests * 344 },
    });
  }
  /** A key that was never used; the first one is in use. */
  const unused = await storedKey(site, ownerId, {
    description: "Not used yet",
  });
  const limited = await storedKey(site, ownerId, {
    description: "Translations",
    models: ["old-model-2", "small-1", "qwen/qwen3-235b-a22b-instruct"],
  });
  return {
    ...{ site, owner, ownerId, key, unused, limited },
    ...{ newcomer: newcomer.page, stranger },
  };
}

interface Play {
  who?: "owner" | "newcomer" | "stranger";
  /** Text by field. */
  fill?: Readonly<Record<string, string>>;
  /** A selector. */
  click?: string;
  /** What the page shows then. */
  shows?: string;
}

/** A page of the owner or of another user, and what this user does there. */
const at = (
  name: string,
  path: string | ((stage: Stage) => string | Promise<string>),
  { who = "owner", fill = {}, click, shows }: Play = {},
): Scene => [name, async (stage) => {
  const page = stage[who];
  await page.goto(typeof path === "string" ? path : await path(stage));
  for (const [field, text] of Object.entries(fill)) {
    await page.locator(`#${field}`).fill(text);
  }
  if (click !== undefined) await page.locator(click).click();
  if (shows !== undefined) await page.getByText(shows).first().waitFor();
  return page;
}];

/** A page of a key of the owner. */
const ofKey = (
  name: string,
  page = "",
  which: "key" | "unused" | "limited" = "key",
) => at(name, (stage) => `/keys/${stage[which].id}${page}`);

/** Every page and every state of one, in an order in which each can be reached. */
export const SCENES: readonly Scene[] = [
  at("keys-empty", "/keys", { who: "newcomer" }),
  at("usage-empty", "/usage", { who: "newcomer" }),
  at("audit-empty", "/audit?action=key.", { who: "newcomer" }),
  at("keys", "/keys"),
  at("keys-nothing", "/keys?search=zzz"),
  at("new", "/keys/new"),
  at("new-errors", "/keys/new", {
    fill: {
      // With a text direction mark, which only the server checks.
      description: "gpj.\u202Eexe",
      requestsPerMinute: "999999999999",
    },
    click: "main button",
    shows: "At most 1,000,000",
  }),
  at("new-models", "/keys/new", {
    click: "[value=these]",
    shows: "neutral-3.7-plus",
  }),
  ofKey("edit-models", "/edit", "limited"),
  at("once", "/keys/new", {
    fill: { description: "Shown once" },
    click: "main button",
    shows: "Store your key now",
  }),
  ofKey("key"),
  ofKey("key-unused", "", "unused"),
  ofKey("edit", "/edit"),
  ofKey("ask-disable", "/ask/disable"),
  ofKey("ask-rotate", "/ask/rotate"),
  ofKey("ask-delete", "/ask/delete", "unused"),
  at("usage-30d", "/usage?range=30d"),
  at("usage", "/usage", { click: "summary", shows: "Hour from" }),
  at("audit", "/audit"),
  at("account", "/account"),
  at("account-refused", "/account", {
    fill: {
      current_password: "not the password",
      new_password: "some other long password",
    },
    click: "text=Change password",
    shows: "The password is wrong",
  }),
  at("second-factor", "/account/second-factor"),
  ["recovery-codes", recoveryCodes],
  at("account-two-step", "/account"),
  at("confirm", "/confirm"),
  at("not-found", "/nothing"),
  at("sign-in", "/sign-in", { who: "stranger" }),
  at("sign-in-refused", "/sign-in", {
    who: "stranger",
    fill: { email: EMAIL, password: "not the password" },
    click: "main button",
    shows: "is wrong",
  }),
  at("set-up", async ({ site: { deps: { links, owners } } }) => {
    const ownerId = await owners.first();
    return linkPath(await links.make({ kind: "set_up", ownerId }));
  }, { who: "stranger" }),
  at("reset-refused", async ({ ownerId, site: { deps: { links } } }) => {
    return linkPath(await links.make({ kind: "reset", ownerId }));
  }, {
    who: "stranger",
    // Long enough for the browser, but easy to guess.
    fill: { new_password: "passwordpassword" },
    click: "main button",
    shows: "too common",
  }),
  ["unavailable", unavailable],
];

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
