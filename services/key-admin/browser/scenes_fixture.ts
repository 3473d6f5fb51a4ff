import type { Page } from "playwright-core";
import { FAILURE_REASONS } from "@gateway/shared/keys/limiter_state";
import { UNLIMITED } from "@gateway/shared/keys/record";
import {
  codeOf,
  fail,
  PASSWORD,
  storedKey,
  useKey,
  useLimits,
} from "../console_fixture.ts";
import type { KeySettings } from "../domain/keys/settings.ts";
import { linkPath } from "../domain/sign_in/links.ts";
import { openWindow, signedIn, type Visit } from "./site_fixture.ts";

/** The users of the console and its data. */
export type Stage = Awaited<ReturnType<typeof setStage>>;

/** A page, or a state of one, and how to reach it. Returns the page that shows it. */
export type Scene = [name: string, play: (stage: Stage) => Promise<Page>];

const EMAIL = "ada.lovelace@example.org";
const OPERATOR_EMAIL = "op@example.org";
const LONG_EMAIL = "someone.with.a.long.name@department.example.org";
const OTHER_DEVICE = {
  ip: "192.0.2.7",
  userAgent: "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0) Safari/605.1",
};
const DAY_MS = 86_400_000;
const HOUR_MS = 3_600_000;
/** Fills the console with owners, keys and usage. */
export async function setStage(visit: Visit) {
  const { site } = visit;
  const { page: owner, ownerId } = await signedIn(visit, EMAIL);
  const newcomer = await signedIn(visit, "grace@example.org");
  const operator = await signedIn(visit, OPERATOR_EMAIL);
  const { owners } = site.deps;
  await owners.giveRole(operator.ownerId);
  await owners.ensure(LONG_EMAIL);
  const { page: stranger } = await openWindow(visit);
  await site.deps.sessions.start(ownerId, OTHER_DEVICE);
  const make = (description: string, settings: Partial<KeySettings> = {}) =>
    storedKey(site, ownerId, { description, ...settings });
  const key = await make("Support assistant, production", {
    models: ["neutral-3.7-plus"],
    limits: {
      ...UNLIMITED,
      requestsPerMinute: 60,
      tokensPerMinute: 60_000,
      concurrency: 4,
      imagesPerDay: 250,
      videoJobs: 2,
    },
  });
  const long =
    "Nightly summaries of long meetings and all that was said in them";
  await make(long, { expiresAtMs: Date.now() + DAY_MS });
  const disabled = await make("Staging");
  const rotated = await make("数据分析服务 🔑");
  await owners.setLimits(ownerId, {
    ...UNLIMITED,
    requestsPerMinute: 50,
    tokensPerMinute: 200_000,
    tokensPerDay: 5_000_000,
  });
  for (const keyId of [key.id, null]) {
    await useLimits(site, { ownerId, keyId }, {
      requestsAheadMs: 20_000,
      tokensAheadMs: keyId ? 72_000 : 25_000,
      dayTokens: 4_812_345,
      running: 1,
      images: 210,
    });
  }
  const actor = { by: EMAIL, ip: OTHER_DEVICE.ip };
  const target = { ownerId, keyId: disabled.id, version: null, actor };
  await site.deps.keys.disable(target);
  await site.deps.keys.rotate({ ...target, keyId: rotated.id }, DAY_MS);
  for (let ago = 22; ago >= 0; ago -= 2) {
    const requests = Math.round(60 * (1 + Math.sin(ago / 4)));
    const errors = Math.round(requests / 30);
    const used = [
      ["neutral-3.7-plus", {
        requests,
        errors,
        cut: errors,
        promptTokens: requests * 812,
        completionTokens: requests * 344,
      }],
      ["qwen/qwen3-235b-a22b-instruct", {
        requests: ago,
        promptTokens: 90 * ago,
        completionTokens: ago,
        refused: 4,
        requests_per_minute: 1,
        "tokens_per_day.owner": 3,
      }],
      ["simulated-image-1", { requests, images: requests }],
      ["simulated-speech-1", { requests, characters: 800 * ago }],
      ["simulated-transcription-1", { requests, audioSeconds: 30 * ago }],
      ["simulated-video-1", { requests, videoSeconds: 4 * ago }],
      ["", { refused: 2, unknown_model: 2 }],
    ] as const;
    const atMs = Date.now() - ago * HOUR_MS;
    for (const [model, counts] of used) {
      await useKey(site, { ownerId, keyId: key.id }, atMs, counts, model);
    }
  }
  for (const [n, reason] of FAILURE_REASONS.entries()) {
    await fail(site, { ownerId, keyId: key.id }, {
      timeMs: Date.now() - n * 7 * 60_000,
      reason,
      ...reason === "unknown_model" && { model: "gpt-4o", status: 404 },
      ...reason === "invalid_request" &&
        { status: 400, code: "invalid_type", param: "messages[0].content" },
    });
  }
  const limited = await make("Translations", {
    models: ["old-model-2", "small-1", "qwen/qwen3-235b-a22b-instruct"],
  });
  return {
    site,
    owner,
    ownerId,
    key,
    limited,
    newcomer: newcomer.page,
    stranger,
    operator: operator.page,
  };
}

interface Play {
  who?: "owner" | "newcomer" | "stranger" | "operator";
  /** Text by field. */
  fill?: Readonly<Record<string, string>>;
  /** A selector. */
  click?: string;
  /** What the page shows then. */
  shows?: string;
}

const OPERATOR: Play = { who: "operator" };

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
const ofKey = (name: string, page = "", which: "key" | "limited" = "key") =>
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
      // With a text direction mark, which only the server checks.
      description: "gpj.\u202Eexe",
      requestsPerMinute: "999999999999",
    },
    click: "main button",
    shows: "At most 1,000,000",
  }),
  ofKey("edit", "/edit", "limited"),
  at("once", "/keys/new", {
    fill: { description: "Shown once" },
    click: "main button",
    shows: "Store your key now",
  }),
  ofKey("key"),
  ofKey("key-unused", "", "limited"),
  ofKey("key-requests", "/requests"),
  ofKey("ask-rotate", "/ask/rotate"),
  ofKey("ask-delete", "/ask/delete", "limited"),
  at("try", "/try"),
  at("usage", "/usage", { click: "summary", shows: "Hour from" }),
  at("audit", "/audit"),
  // The link unfolds what it leads to.
  at("reference", "/reference", {
    click: "[href='#SystemMessage']",
    shows: "developer",
  }),
  at("account", "/account"),
  at("second-factor", "/account/second-factor"),
  ["recovery-codes", recoveryCodes],
  at("account-two-step", "/account"),
  at("people", "/people", {
    ...OPERATOR,
    click: "summary",
    shows: "Whoever opens it",
  }),
  // From the open form of the scene before.
  ["people-link", async ({ operator }) => {
    await operator.locator("#email").fill("new@example.org");
    await operator.getByText("Create link").click();
    await operator.getByText("Pass this link on").waitFor();
    return operator;
  }],
  at("people-keys", "/people/keys", OPERATOR),
  at("person", ({ ownerId }) => `/people/${ownerId}`, {
    ...OPERATOR,
    click: "summary >> text=Remove second factor",
    shows: "Make sure",
  }),
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
      // Long enough for the browser, but easy to guess.
      fill: { new_password: "passwordpassword" },
      click: "main button",
      shows: "too common",
    },
  ),
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
