/** Fields that several requests of the admin API share. */
import { isAccountId } from "@gateway/shared/keys/key";
import { REASON_CHARS_MAX } from "../domain/audit/audit_log.ts";
import { END_USERS_EXAMPLE } from "../domain/keys/end_users.ts";
import {
  KEY_FILTERS,
  PAGE_ROWS,
  PAGE_ROWS_MAX,
} from "../domain/keys/key_page.ts";
import {
  KEEP_SECONDS_EXPECTED,
  LIMIT_NAMES,
  limitWords,
  lineOfText,
  SETTING_TEXTS,
} from "../domain/keys/settings.ts";
import { isSort, type SortValues } from "../domain/store/sorted.ts";
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import type { Limits } from "@gateway/shared/keys/record";
import { z } from "zod";

const { shape: setting } = SETTING_TEXTS;

/** A query or a body without members. */
export const NOTHING = z.strictObject({});
/** The body of methods that read none: `GET`, `DELETE`. */
export const NO_BODY = z.undefined();

const texts = z.array(z.string()).max(1_000);
const joined = texts.transform((all) => all.join(","));
const words = new Map(LIMIT_NAMES.map((name) => [limitWords(name, "_"), name]));

/** Some limits, by the words of their names: `{"requests_per_minute": 600}`. */
export const someLimits = z.record(
  z.string(),
  z.union([z.number(), z.string().max(50)]),
).transform((texts, context) => {
  const limits: Partial<Limits> = {};
  for (const [word, value] of Object.entries(texts)) {
    const name = words.get(word);
    const parsed = name && setting[name].safeParse(String(value));
    if (name === undefined || parsed === undefined) {
      const message = `There is no such limit. Limits are ${
        [...words.keys()].join(", ")
      }`;
      context.addIssue({ code: "custom", path: [word], message });
    } else if (parsed.success) limits[name] = parsed.data;
    else {
      const [issue] = parsed.error.issues;
      const message = issue?.message ?? "Not valid";
      context.addIssue({ code: "custom", path: [word], message });
    }
  }
  return limits;
}).meta({ description: `Numbers by limit: ${[...words.keys()].join(", ")}` });

/** Ids or aliases of models. */
export const modelNames = joined.pipe(setting.models).meta({
  description: "Ids or aliases; empty: all",
});

/** Fields of a key that a request may set. */
export const KEY_MEMBERS = {
  description: setting.description,
  scopes: setting.scopes,
  models: modelNames,
  allowed_cidrs: joined.pipe(setting.allowedCidrs).meta({
    description: "Networks; empty: all",
  }),
  limits: someLimits,
  end_users: z.string().max(300).pipe(setting.endUsers).meta({
    description: `Limits of each end user, "${END_USERS_EXAMPLE}"; empty: none`,
  }),
  priority: setting.priority.meta({
    description: "`batch`: its requests wait behind all others of its account",
  }),
  keep_seconds: z.int(KEEP_SECONDS_EXPECTED)
    .min(0, KEEP_SECONDS_EXPECTED)
    .max(KEPT_LIMITS.secondsMax, KEEP_SECONDS_EXPECTED)
    .meta({
      description:
        "For how long its answers are kept after their end, where a request does not say it; 0: they are not",
    }),
  expires_at: z.string().max(50).nullable()
    .transform((text) => text ?? "never").pipe(setting.expires)
    .meta({ description: "A day or a time in ISO 8601; null: never" }),
  state: z.enum(["enabled", "disabled"]),
};

/** A flag of a query: `true` or `false`, which is the default. */
export const queryFlag = z.enum(["true", "false"]).default("false")
  .transform((text) => text === "true");

/** Why it is done, for the audit log. */
export const reason = lineOfText("Say why, or leave it out")
  .pipe(z.string().max(REASON_CHARS_MAX))
  .meta({ description: "Why, for the audit log of the account" });

/** The id of an account, which is an owner or a project. */
export const accountId = z.string().refine(
  isAccountId,
  "The id of an owner (own_…) or of a project (prj_…)",
);

/** Which page of a list without a search. */
export const PLACE = {
  after: z.string().max(200).default("").meta({
    description: "The `next` of an earlier page",
  }),
  rows: z.string().regex(/^\d{1,3}$/, "A whole number").transform(Number)
    .pipe(z.number().min(1).max(PAGE_ROWS_MAX)).default(PAGE_ROWS),
};

/** The query that selects a page of a list. */
export const PAGE = { search: z.string().max(200).default(""), ...PLACE };

/** The query that names the order of a list. */
export const sortBy = (values: SortValues<never>) =>
  z.string().refine(
    (text) => isSort(text, values),
    `One of ${namesOf(values)}, behind a - with the largest first`,
  ).optional().meta({
    description: `Instead of newest first: ${
      namesOf(values)
    }, behind a \`-\` with the largest first`,
  });

const namesOf = (values: SortValues<never>): string =>
  Object.keys(values).join(", ");

/** The query that selects keys by their state. */
export const stateFilter = z.enum(KEY_FILTERS).default("all");
