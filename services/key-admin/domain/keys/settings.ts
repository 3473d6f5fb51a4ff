/** The settings of a key: their bounds, and how they are read from texts. */
import {
  KEY_PRIORITIES,
  KEY_SCOPES,
  type KeyRecord,
  type KeyScope,
  type Limits,
} from "@gateway/shared/keys/record";
import { KEPT_LIMITS } from "@gateway/shared/kept/limits";
import { KEY_LIMITS } from "@gateway/shared/keys/limits";
import { NETWORKS_MAX, parseKeyNetwork } from "@gateway/shared/keys/networks";
import {
  AMOUNT_FAULTS,
  AMOUNT_NANOS_MAX,
  formatAmount,
  parseAmount,
} from "@gateway/shared/money/amount";
import { integer, keysOf, variable } from "@gateway/shared/process/env";
import { clip, didYouMean } from "@gateway/shared/process/error_text";
import { z } from "zod";
import { endUsersSetting } from "./end_users.ts";

/** The settings of a key that an owner chooses. The system sets the rest. */
export type KeySettings = Pick<
  KeyRecord,
  | "description"
  | "scopes"
  | "models"
  | "networks"
  | "endUsers"
  | "priority"
  | "keepSeconds"
  | "limits"
  | "expiresAtMs"
>;

const FEW_MAX = 1_000_000;
const MANY_MAX = 1_000_000_000_000;
/** The unit of budgets: billionths inside, decimals in texts. */
const MONEY = "money";
/**
 * The unit of each limit, its largest value (exact in Lua, readable in a table), and
 * what it is in words.
 */
export const LIMITS: Readonly<
  Record<keyof Limits, readonly [unit: string, max: number, words: string]>
> = {
  requestsPerMinute: ["requests", FEW_MAX, "requests per minute"],
  tokensPerMinute: ["tokens", MANY_MAX, "tokens per minute"],
  tokensPerDay: ["tokens", MANY_MAX, "tokens per UTC day"],
  concurrency: ["requests", FEW_MAX, "requests at the same time"],
  imagesPerDay: ["images", MANY_MAX, "images per UTC day"],
  charactersPerDay: ["characters", MANY_MAX, "characters spoken per UTC day"],
  audioSecondsPerDay: ["seconds", MANY_MAX, "seconds transcribed per UTC day"],
  videoSecondsPerDay: ["seconds", MANY_MAX, "seconds of video per UTC day"],
  videoJobs: ["videos", FEW_MAX, "videos at the same time"],
  queueWeight: ["percent", 10_000, "weight in queues, in percent"],
  budgetDay: [MONEY, AMOUNT_NANOS_MAX, "money per calendar day"],
  budgetMonth: [MONEY, AMOUNT_NANOS_MAX, "money per calendar month"],
  budgetTotal: [MONEY, AMOUNT_NANOS_MAX, "money altogether"],
};
type LimitName = keyof Limits;

/** A key that needs more may use all. */
const MODELS_MAX = 100;
const MODEL_ID = /^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$/;

/**
 * Controls, code points that are not characters, line separators, annotations, and
 * marks that change the direction of text.
 */
const FORBIDDEN =
  /[\p{Cc}\p{Cs}\p{Noncharacter_Code_Point}\uFFF9-\uFFFB\u2028\u2029\u061C\u200E\u200F\u202A-\u202E\u2066-\u2069]/u;
/** Something visible: not only spaces, joiners and invisible letters (U+3164). */
const VISIBLE = /(?!\p{Default_Ignorable_Code_Point})[\p{L}\p{N}\p{P}\p{S}]/u;

/** A text of one line that people read. `missing` is said of one that shows nothing. */
export const lineOfText = (missing: string) =>
  z.string()
    .transform((text) => text.normalize("NFC").trim())
    .refine((text) => VISIBLE.test(text), missing)
    .refine(
      (text) => [...text].length <= KEY_LIMITS.descriptionCharsMax,
      `At most ${KEY_LIMITS.descriptionCharsMax} characters`,
    )
    .refine(
      (text) => !FORBIDDEN.test(text),
      "Line breaks, control characters and text direction marks are not allowed",
    );

const description = lineOfText("Say what the key is for");

/** One of a few words. `is` begins the message about any other, as in "Scopes are". */
export const oneOf = <const T extends string>(
  is: string,
  words: readonly T[],
) =>
  z.enum(words, {
    error: ({ input }) =>
      `${is} ${words.join(", ")}${didYouMean(String(input), words)}`,
  });

const scopes = z.array(oneOf("Scopes are", KEY_SCOPES))
  .min(1, "Choose at least one")
  .transform((names): KeyScope[] =>
    KEY_SCOPES.filter((scope) => names.includes(scope))
  );

const models = z.string()
  .transform((text) => [...new Set(text.split(/[\s,]+/).filter(Boolean))])
  .pipe(
    z.array(
      z.string().regex(
        MODEL_ID,
        "Model ids are letters, digits and . _ : / @ + -, at most 200 characters",
      ),
    ).max(MODELS_MAX, `At most ${MODELS_MAX} models`),
  );

/**
 * Returns a message about the first id that names no model; undefined if all name one.
 */
export function unknownModel(
  ids: readonly string[],
  existing: readonly string[],
) {
  const id = ids.find((id) => !existing.includes(id));
  if (id === undefined) return undefined;
  const hint = didYouMean(id, existing) ||
    `. The models are ${existing.join(", ")}`;
  return `There is no model '${id}'${clip(hint, MODELS_SHOWN_CHARS_MAX)}`;
}
/** A longer list would not help to find a misspelled name. */
const MODELS_SHOWN_CHARS_MAX = 300;

/**
 * An empty text and `never` are null. A day ends at midnight in UTC. Whether the time
 * is in the past is checked elsewhere.
 */
const expires = z.string()
  .transform((text) => text.replace(/^\d{4}-\d\d-\d\d$/, "$&T23:59:59Z"))
  .pipe(z.union(
    [
      z.literal(["", "never"]).transform(() => null),
      z.iso.datetime({ offset: true }).transform((text) => Date.parse(text)),
    ],
    "A day such as 2027-01-31, a time such as 2027-01-31T12:00:00Z, or never",
  ));

/** The limits in the order in which they are shown. */
export const LIMIT_NAMES = keysOf(LIMITS);

/** A value for each limit, as `valueOf` returns it for the name of the limit. */
export function limitsOf<T>(
  valueOf: (name: LimitName) => T,
): Record<LimitName, T>;
/** The same, as it is implemented. */
export function limitsOf(valueOf: (name: LimitName) => unknown): object {
  return Object.fromEntries(LIMIT_NAMES.map((name) => [name, valueOf(name)]));
}

/** Whether a limit is a budget of money. */
export const isBudget = (name: LimitName): boolean => LIMITS[name][0] === MONEY;

/** A limit as forms and the command line take it: `600`, `2.5`. */
export const limitText = (name: LimitName, value: number): string =>
  isBudget(name) ? formatAmount(value) : String(value);

/**
 * Whether it is a bound that requests use up. The weight in queues is stored among the
 * limits, because operators set it with them.
 */
export const isBound = (name: LimitName): boolean => name !== "queueWeight";

/** Whether the budget in total would allow more than before, or is set no more. */
export const addsToTotal = (
  { budgetTotal: before }: Pick<Limits, "budgetTotal">,
  { budgetTotal: after }: Pick<Limits, "budgetTotal">,
): boolean => before > 0 && (after === 0 || after > before);

/** What it means that a limit is not set. */
export const absenceText = (name: LimitName): string => {
  if (isBudget(name)) return "No budget";
  return isBound(name) ? "No limit" : "100";
};

/** The limits on images, speech, recordings and videos. */
export const MEDIA_LIMIT_NAMES = LIMIT_NAMES.filter((name) =>
  !/^(requests|tokens|money|percent)$/.test(LIMITS[name][0])
);

/**
 * The words of a limit's name: `limitWords("tokensPerDay", "_")` is `tokens_per_day`.
 */
export const limitWords = (name: string, separator: string): string =>
  name.replace(/[A-Z]/g, (letter) => separator + letter.toLowerCase());

/** Limits under the words of their names; budgets as decimals, 0 where none is set. */
export const namedLimits = (
  limits: Limits,
  separator: string,
): Record<string, string | number> =>
  Object.fromEntries(
    LIMIT_NAMES.map((name) => [
      limitWords(name, separator),
      isBudget(name) && limits[name] > 0
        ? formatAmount(limits[name])
        : limits[name],
    ]),
  );

/** A decimal as billionths; an empty text means no budget, like 0. */
const budget = z.string().trim().transform((text, context) => {
  const nanos = text === "" ? 0 : parseAmount(text);
  if (typeof nanos === "number") return nanos;
  const fault = AMOUNT_FAULTS[nanos].replace("expected", "Expected");
  context.addIssue(`${fault}; 0 means no budget`);
  return z.NEVER;
});

/** An empty text means no limit, like 0. */
const limit = (name: LimitName) => {
  if (isBudget(name)) return budget;
  const [, max] = LIMITS[name];
  const most = max.toLocaleString("en");
  const tooMuch = `At most ${most}; 0 means ${absenceText(name).toLowerCase()}`;
  return z.string().trim()
    .regex(/^\d*$/, `Must be a whole number. ${tooMuch}`)
    .transform(Number)
    .pipe(z.number(tooMuch).max(max, tooMuch));
};

/** What is said of another number of seconds. */
export const KEEP_SECONDS_EXPECTED =
  `Must be a whole number of seconds from 0 to ${KEPT_LIMITS.secondsMax}; 0 means that answers are not kept`;

/** An empty text means that answers are not kept, like 0. */
const keepSeconds = z.string().trim()
  .regex(/^\d{0,9}$/, KEEP_SECONDS_EXPECTED)
  .transform(Number)
  .pipe(z.number().max(KEPT_LIMITS.secondsMax, KEEP_SECONDS_EXPECTED));

/**
 * Reads networks, separated by spaces, commas or line breaks. Without any, requests may
 * come from anywhere.
 */
const allowedCidrs = z.string().transform((text, context) => {
  const texts = text.split(/[\s,]+/).filter((each) => each !== "");
  const stored = new Set<string>();
  for (const each of texts) {
    const network = parseKeyNetwork(each);
    if ("stored" in network) stored.add(network.stored);
    else context.addIssue(`${clip(each)}: ${network.fault}`);
  }
  if (stored.size > NETWORKS_MAX) {
    context.addIssue(`At most ${NETWORKS_MAX} networks`);
  }
  return [...stored];
});

/**
 * Schemas that read the settings from the texts of a form or of command line options.
 */
export const SETTING_TEXTS = z.object({
  description,
  scopes,
  models,
  expires,
  allowedCidrs,
  endUsers: endUsersSetting,
  priority: oneOf("Priorities are", KEY_PRIORITIES),
  keepSeconds,
  ...limitsOf(limit),
});

/** The settings of a key that states none: it may use everything, and never expires. */
export const newSettings = ({ key: limits }: DefaultLimits): KeySettings => ({
  description: "",
  scopes: KEY_SCOPES,
  models: [],
  networks: [],
  endUsers: null,
  priority: "normal",
  keepSeconds: 0,
  limits,
  expiresAtMs: null,
});

/** The limits that new keys and new owners get. */
export interface DefaultLimits {
  key: Limits;
  owner: Limits;
}

const nameOf = (prefix: string, name: LimitName) =>
  `${prefix}_${limitWords(name, "_").toUpperCase()}`;

const money = () =>
  variable(budget, { expects: "an amount of CURRENCY such as 2.50" });

const variablesOf = (prefix: string, whose: string) =>
  Object.fromEntries(LIMIT_NAMES.map((name) => {
    const [unit, max, words] = LIMITS[name];
    const meaning = isBound(name)
      ? `Default limit of ${whose}: ${words}; 0 for none`
      : `Default of ${whose}: ${words}; 0 for 100`;
    const value = isBudget(name) ? money() : integer(unit, { min: 0, max });
    return [nameOf(prefix, name), value.default(0).describe(meaning)];
  }));

/** The variables behind {@link DefaultLimits}: `KEY_REQUESTS_PER_MINUTE` and so on. */
export const LIMIT_VARIABLES = {
  ...variablesOf("KEY", "a new key"),
  ...variablesOf("OWNER", "all keys of a new owner"),
};

/** Reads {@link LIMIT_VARIABLES} once they are parsed. */
export const defaultLimitsOf = (
  env: Readonly<Record<string, unknown>>,
): DefaultLimits => ({
  key: limitsOf((name) => Number(env[nameOf("KEY", name)])),
  owner: limitsOf((name) => Number(env[nameOf("OWNER", name)])),
});
