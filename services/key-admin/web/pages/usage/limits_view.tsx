/**
 * Limits in forms; and use against them as bars, of a key and its owner, or of the
 * owner alone.
 */

import type { Child } from "hono/jsx";
import type { KeyRecord, Limits } from "@gateway/shared/keys/record";
import {
  bindingMeter,
  type Meter,
  readMeters,
} from "../../../domain/keys/limit_use.ts";
import {
  absenceText,
  isBound,
  isBudget,
  LIMIT_NAMES,
  limitsOf,
  limitText,
  MEDIA_LIMIT_NAMES,
} from "../../../domain/keys/settings.ts";
import { BudgetDays } from "@gateway/shared/keys/budget_calendar";
import type { ConsoleDeps } from "../../context.ts";
import { Field, PostForm } from "../../view/parts.tsx";
import { labelOf, money, number, Time } from "../../view/texts.tsx";

type LimitInput = Omit<Parameters<typeof Field>[0], "id" | "label">;

const WEIGHT_HELP =
  "In percent of what others get while requests wait for a free slot.";

/**
 * The fields of all limits. `inputOf` returns the value of one, and what is special
 * about it.
 */
export const limitFields = (inputOf: (name: keyof Limits) => LimitInput) => (
  <fieldset>
    <legend>Limits</legend>
    <div class="pair">
      {LIMIT_NAMES.map((name) => (
        <Field
          id={name}
          label={labelOf(name)}
          {...isBudget(name)
            ? { inputmode: "decimal" }
            : { type: "number", min: 0 }}
          placeholder={absenceText(name)}
          {...!isBound(name) && { help: WEIGHT_HELP }}
          {...inputOf(name)}
        />
      ))}
    </div>
  </fieldset>
);

/**
 * The limits of all keys of an account together, for operators: those that are set,
 * with what is used of them, and a form that is folded unless it was refused.
 */
export async function accountLimits(
  { redis, owners, budgetZone, catalog }: LimitStores,
  ownerId: string,
  { action, texts, whose, isOpen }: {
    action: string;
    /** The texts of the fields, where an empty one is no limit. Default: as set. */
    texts?: Readonly<Record<keyof Limits, string>> | undefined;
    whose: keyof typeof WORDS;
    isOpen: boolean;
  },
) {
  const limits = await owners.limits(ownerId);
  const { currency } = catalog.prices;
  const days = new BudgetDays(budgetZone);
  const { meters, nowMs } = await readMeters(redis, { ownerId, limits, days });
  const set = LIMIT_NAMES.filter((name) => limits[name] > 0);
  const shown = texts ?? limitTexts(limits);
  return (
    <section class="card">
      <h2>Limits of all keys together</h2>
      {set.length === 0 && (
        <p class="faint">No limit is set. Each key has its own.</p>
      )}
      {meters.length > 0 && (
        <Meters
          meters={meters}
          names={set}
          shown={{ words: WORDS[whose], nowMs, currency }}
        />
      )}
      {set.filter((name) => !isBound(name)).map((name) => (
        <p>
          {labelOf(name)}:{" "}
          <strong>{shownLimit(name, limits[name], currency)}</strong>
        </p>
      ))}
      <details open={isOpen}>
        <summary>{set.length === 0 ? "Add a limit" : "Change limits"}</summary>
        <PostForm action={action} submit="Save limits" look="">
          {limitFields((name) => ({ value: shown[name] }))}
        </PostForm>
      </details>
    </section>
  );
}

/** Limits as the fields of the form have them. */
const limitTexts = (limits: Limits) =>
  limitsOf((name) => limits[name] === 0 ? "" : limitText(name, limits[name]));

const DAY_MS = 86_400_000;
/** From this share of a limit on, its bar warns. */
const WARN_SHARE = 0.8;

/** Names of the sides of a limit, for the owner of the key. */
const OWN_WORDS = { key: "This key", owner: "All your keys" } as const;
/** Names of the sides, for an operator who looks at somebody else's key. */
const OTHER_WORDS = {
  key: "This key",
  owner: "All keys of the owner",
} as const;
/** Names of the sides, for a member of a project. */
const PROJECT_WORDS = {
  key: "This key",
  owner: "All keys of the project",
} as const;
const WORDS = {
  own: OWN_WORDS,
  other: OTHER_WORDS,
  project: PROJECT_WORDS,
} as const;
type Words = typeof WORDS[keyof typeof WORDS];

/** The dependencies of the card, which reads limits and their use. */
type LimitStores = Pick<
  ConsoleDeps,
  "redis" | "owners" | "budgetZone" | "catalog"
>;

/** A limit, or use of it, for people: `1,000` or `$2.50`. */
export const shownLimit = (
  name: keyof Limits,
  value: number,
  currency: string,
): string => {
  if (isBudget(name)) return money(value, currency);
  return isBound(name) ? number(value) : `${number(value)} %`;
};

/**
 * A card with use against the limits of a key and its owner, or of the owner alone; the
 * latter only if the operator has set any.
 */
export async function limitsCard(
  { redis, owners, budgetZone, catalog }: LimitStores,
  ownerId: string,
  { key, whose = "own" }: { key?: KeyRecord; whose?: keyof typeof WORDS } = {},
) {
  const words = WORDS[whose];
  const limits = await owners.limits(ownerId);
  const { currency } = catalog.prices;
  const days = new BudgetDays(budgetZone);
  const query = { ownerId, limits, days };
  const { meters, nowMs } = await readMeters(redis, query, key);
  if (key === undefined && meters.length === 0) return null;
  const names = LIMIT_NAMES.filter((name) =>
    !MEDIA_LIMIT_NAMES.includes(name) && !isBudget(name) ||
    meters.some((meter) => meter.name === name)
  );
  return (
    <section class="card">
      <header>
        <h2>
          {key === undefined && whose === "own" ? "Your limits" : "Limits"}
        </h2>
        <p class="help">
          {key === undefined
            ? `Set by the operator. They apply to ${words.owner.toLowerCase()} together, whatever the limits of each key.`
            : "A request must pass every limit of this key and those that operators set for all keys of its owner together."}
        </p>
      </header>
      <Meters
        meters={meters}
        names={names}
        shown={{ words, nowMs, currency }}
      />
    </section>
  );
}

/** How meters are shown: whose they are, as of when, and in which currency. */
interface MeterLook {
  words: Words;
  nowMs: number;
  currency: string;
}

/** Bars of the limits with these names, the one first that is closest. */
function Meters({ meters, names, shown }: {
  meters: readonly Meter[];
  names: readonly (keyof Limits)[];
  shown: MeterLook;
}) {
  const binding = bindingMeter(meters);
  return (
    <>
      {binding && (
        <p class={`banner ${lookOf(binding)}`}>
          <strong>
            The closest limit: {labelOf(binding.name).toLowerCase()} of{" "}
            {shown.words[binding.whose].toLowerCase()}.
          </strong>{" "}
          {binding.used >= binding.limit
            ? `${refused(binding.name)}.`
            : `${
              Math.floor(100 * binding.used / binding.limit)
            }% is used, more than of any other limit.`}
        </p>
      )}
      <div class="split">
        {names.filter(isBound).map((name) => {
          const rows = meters.filter((meter) => meter.name === name);
          return (
            <div>
              <h3>{labelOf(name)}</h3>
              {rows.length === 0 && <p class="faint">No limit</p>}
              {rows.map((meter) => barOf(meter, shown))}
            </div>
          );
        })}
      </div>
      <p class="help">
        As of{" "}
        <Time ms={shown.nowMs} as="minute" />; reload for newer numbers. A limit
        per minute refills evenly: 60 per minute is one each second.
        {meters.some(({ name }) => isBudget(name)) &&
          " A budget counts what is admitted from the time it is set."}
      </p>
    </>
  );
}

function barOf(meter: Meter, { words, nowMs, currency }: MeterLook) {
  const { whose, name, limit, used } = meter;
  return (
    <div class="meter">
      <p class="between">
        <span>{words[whose]}</span>
        <span class="num">
          {shownLimit(name, used, currency)} of{" "}
          {shownLimit(name, limit, currency)}
        </span>
      </p>
      <meter
        aria-label={`${labelOf(name)}, ${words[whose].toLowerCase()}`}
        max={limit}
        low={WARN_SHARE * limit}
        high={isBudget(name) ? limit - 1 : limit - 0.5}
        optimum={0}
        value={Math.min(used, limit)}
      />
      <p class="help">
        {meter.resetMs === undefined
          ? noteOf(meter, nowMs)
          : budgetNote(meter, currency)}
      </p>
    </div>
  );
}

/** Says what running requests hold of a budget, and when it is reset. */
function budgetNote(
  { name, limit, used, held = 0, resetMs }: Meter,
  currency: string,
): Child {
  const over = used > limit
    ? `${
      money(used - limit, currency)
    } more than allowed was spent by requests that ran when it was reached. `
    : "";
  const holding = held > 0
    ? `Running requests hold ${money(held, currency)}. `
    : "";
  const isFull = used >= limit;
  if (!resetMs) {
    return `${over}${holding}${
      isFull ? `${refused(name)} until it is raised` : "It is not reset"
    }`;
  }
  return (
    <>
      {over}
      {holding}
      {isFull ? `${refused(name)} until` : "Resets at"}{" "}
      <Time ms={resetMs} as="minute" />
    </>
  );
}

const refused = (name: keyof Limits) =>
  MEDIA_LIMIT_NAMES.includes(name)
    ? "New requests of this kind are refused"
    : "New requests are refused";

/** The colour of a meter. Its text says the same. */
const lookOf = ({ used, limit }: Meter) =>
  used >= limit ? "bad" : used >= WARN_SHARE * limit ? "warn" : "";

/** Says until when requests are refused, or when nothing is in use any more. */
function noteOf({ name, limit, used, exact }: Meter, nowMs: number): Child {
  const isFull = used >= limit;
  if (name === "concurrency" || name === "videoJobs") {
    return isFull ? `${refused(name)} until one ends` : "Running now";
  }
  if (name.endsWith("PerDay")) {
    const endMs = (Math.floor(nowMs / DAY_MS) + 1) * DAY_MS;
    return (
      <>
        {isFull ? `${refused(name)} until` : "Resets at"}{" "}
        <Time ms={endMs} as="minute" />
      </>
    );
  }
  const secondsFor = (count: number) =>
    number(Math.max(1, Math.ceil(60 * count / limit)));
  if (used === 0) return "Not in use now";
  return isFull
    ? `New requests are refused for at least ${secondsFor(exact - limit + 1)} s`
    : `Fully available in ${secondsFor(exact)} s`;
}
