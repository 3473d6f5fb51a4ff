import { KEY_SCOPES, type Limits } from "@gateway/shared/keys/record";
import type { z } from "zod";
import {
  type KeySettings,
  limitsSchema,
  settingsSchema,
} from "../domain/keys/settings.ts";
import {
  type CommandLine,
  type OptionName,
  type TextOption,
  UsageError,
  WHOLE_NUMBER,
} from "./arguments.ts";

/** Options that say how a key or an owner shall be, and the way from them to {@link KeySettings}. */

/** Options that are limits, of a key or of an owner. */
export const LIMIT_OPTIONS: readonly OptionName[] = [
  "rpm",
  "tpm",
  "tokens-per-day",
  "concurrency",
];

/** Options that describe a key. */
export const SETTING_OPTIONS: readonly OptionName[] = [
  "description",
  ...LIMIT_OPTIONS,
  "expires",
  "models",
  "scopes",
];

/** The settings of a new key, with `defaults` for limits that are not given. */
export function settingsFrom(
  line: CommandLine,
  nowMs: number,
  defaults: Limits,
): KeySettings {
  return checkSettings({
    description: line.text("description") ?? "",
    scopes: listOf(line.text("scopes")) ?? [...KEY_SCOPES],
    models: listOf(line.text("models")) ?? [],
    limits: { ...defaults, ...limitsFrom(line) },
    expiresAtMs: expiryFrom(line, nowMs) ?? null,
  });
}

/** The settings of an existing key with those replaced that are given. */
export function editedSettings(
  line: CommandLine,
  before: KeySettings,
  nowMs: number,
): KeySettings {
  const expiresAtMs = expiryFrom(line, nowMs);
  return checkSettings({
    description: line.text("description") ?? before.description,
    scopes: listOf(line.text("scopes")) ?? before.scopes,
    models: listOf(line.text("models")) ?? before.models,
    limits: { ...before.limits, ...limitsFrom(line) },
    expiresAtMs: expiresAtMs === undefined ? before.expiresAtMs : expiresAtMs,
  });
}

/** The limits that were given. */
export function limitsFrom(line: CommandLine): Partial<KeySettings["limits"]> {
  const number = (name: TextOption) => {
    const text = line.text(name);
    return text === undefined ? undefined : limitFrom(name, text);
  };
  const limits = {
    requestsPerMinute: number("rpm"),
    tokensPerMinute: number("tpm"),
    tokensPerDay: number("tokens-per-day"),
    concurrency: number("concurrency"),
  };
  return Object.fromEntries(
    Object.entries(limits).filter(([, value]) => value !== undefined),
  );
}

function limitFrom(name: TextOption, text: string): number {
  if (WHOLE_NUMBER.test(text)) return Number(text);
  throw new UsageError(`--${name} is a whole number, 0 for no limit`);
}

/** Undefined: not given. Null: `never`. */
function expiryFrom(
  line: CommandLine,
  nowMs: number,
): number | null | undefined {
  const text = line.text("expires");
  if (text === undefined) return undefined;
  if (text === "never") return null;
  const atMs = Date.parse(text);
  if (Number.isNaN(atMs)) {
    throw new UsageError(
      `--expires is a time such as 2027-01-31T12:00:00Z, or never`,
    );
  }
  if (atMs <= nowMs) throw new UsageError("--expires lies in the past");
  return atMs;
}

function listOf(text: string | undefined): string[] | undefined {
  if (text === undefined) return undefined;
  return text.split(",").map((item) => item.trim())
    .filter((item) => item !== "");
}

function checkSettings(
  wanted: Record<keyof KeySettings, unknown>,
): KeySettings {
  const checked = settingsSchema.safeParse(wanted);
  if (checked.success) return checked.data;
  throw mistakes(checked.error);
}

/** Checks limits that are complete. */
export function checkLimits(wanted: Limits): Limits {
  const checked = limitsSchema.safeParse(wanted);
  if (checked.success) return checked.data;
  throw mistakes(checked.error);
}

const OPTION_OF: Readonly<Record<string, OptionName>> = {
  requestsPerMinute: "rpm",
  tokensPerMinute: "tpm",
  tokensPerDay: "tokens-per-day",
  concurrency: "concurrency",
  expiresAtMs: "expires",
};

/** One line per mistake, such as `--concurrency: At most 1,000,000`. */
function mistakes(error: z.ZodError): UsageError {
  const lines = error.issues.map(({ path, message }) => {
    const [first = "", second] = path.map(String);
    const name = first === "limits" ? second ?? "" : first;
    return `--${OPTION_OF[name] ?? name}: ${message}`;
  });
  return new UsageError([...new Set(lines)].join("\n"));
}
