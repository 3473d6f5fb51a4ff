import type { Child } from "hono/jsx";
import {
  bindingMeter,
  type LimitMeters,
  type Meter,
  readMeters,
} from "../domain/keys/limit_use.ts";
import { LIMIT_NAMES } from "../domain/keys/settings.ts";
import type { ConsoleContext } from "./context.ts";
import { labelOf, number, Time } from "./parts.tsx";

/** Use against limits as bars: of a key and its owner, or of the owner alone. */

const DAY_MS = 86_400_000;
/** From this share of a limit on, its bar warns. */
const WARN_SHARE = 0.8;

const WHOSE = { key: "This key", owner: "All your keys" } as const;

/** A card with the four limits, those that bind first marked. */
export const LimitsCard = ({ shown: { meters, nowMs }, title, help }: {
  shown: LimitMeters;
  title: string;
  help: Child;
}) => {
  const binding = bindingMeter(meters);
  return (
    <section class="card">
      <header>
        <h2>{title}</h2>
        <p class="help">{help}</p>
      </header>
      {binding && <Binding meter={binding} nowMs={nowMs} />}
      <div class="meters">
        {LIMIT_NAMES.map((name) => (
          <section>
            <h3>{labelOf(name)}</h3>
            {meters.every((meter) => meter.name !== name) && (
              <p class="faint">No limit</p>
            )}
            {meters.filter((meter) => meter.name === name).map((meter) => (
              <Bar
                meter={meter}
                nowMs={nowMs}
                isBinding={meter === binding}
                ownerLimit={meters.find((other) =>
                  other.name === name && other.whose === "owner"
                )?.limit}
              />
            ))}
          </section>
        ))}
      </div>
      <p class="help">
        At{" "}
        <Time ms={nowMs} as="minute" />; reload for newer numbers. A limit per
        minute refills evenly: 60 per minute is one each second.
      </p>
    </section>
  );
};

/** The owner's limits and their use, or nothing if the operator has set none. */
export async function ownerLimits(c: ConsoleContext): Promise<Child> {
  const { deps: { redis, owners }, signedIn: { session: { ownerId } } } = c.var;
  const limits = await owners.limits(ownerId);
  const shown = await readMeters(redis, { ownerId, limits });
  return shown.meters.length > 0 && (
    <LimitsCard shown={shown} title="Your limits" help={BY_OPERATOR} />
  );
}

const BY_OPERATOR =
  "Set by the operator. They apply to all your keys together, whatever the limits of each key.";

function Binding({ meter, nowMs }: { meter: Meter; nowMs: number }) {
  const { whose, name, limit, used } = meter;
  const words = `${labelOf(name).toLowerCase()} of ${
    WHOSE[whose].toLowerCase()
  }`;
  const isFull = used >= limit;
  return (
    <p class={`banner ${lookOf(meter)}`}>
      <strong>This limit binds: {words}.</strong> {isFull
        ? <>Requests are refused {whenFree(meter, nowMs)}.</>
        : `${Math.floor(100 * used / limit)}% is used, more than of any other.`}
    </p>
  );
}

/** The colour of a meter. Its text says the same. */
const lookOf = ({ used, limit }: Meter) =>
  used >= limit ? "bad" : used >= WARN_SHARE * limit ? "warn" : "";

/** When a limit that is used up accepts a request again. */
function whenFree({ name, limit, used }: Meter, nowMs: number): Child {
  if (name === "concurrency") return "until one that is running ends";
  if (name === "tokensPerDay") {
    return (
      <>
        until <Time ms={nextDayMs(nowMs)} as="minute" />
      </>
    );
  }
  return `for about ${secondsOf((used - limit + 1) / limit)}`;
}

function Bar({ meter, nowMs, isBinding, ownerLimit = Infinity }: {
  meter: Meter;
  nowMs: number;
  isBinding: boolean;
  ownerLimit: number | undefined;
}) {
  const { whose, name, limit, used } = meter;
  const share = used / limit;
  const text = `${number(used)} of ${number(limit)}`;
  return (
    <div class={`meter ${lookOf(meter)}`}>
      <p class="between">
        <span>{WHOSE[whose]}</span>
        <span class="num">{text}</span>
      </p>
      <svg
        viewBox="0 0 100 1"
        preserveAspectRatio="none"
        role="meter"
        aria-label={`${labelOf(name)}, ${WHOSE[whose].toLowerCase()}`}
        aria-valuemin={0}
        aria-valuemax={limit}
        aria-valuenow={Math.min(used, limit)}
        aria-valuetext={text}
      >
        <rect width={100 * Math.min(1, share)} height="1" />
      </svg>
      <div class="between">
        <p class="help">{noteOf(meter, nowMs)}</p>
        {isBinding && <span class="badge">Binds</span>}
      </div>
      {whose === "key" && limit > ownerLimit && (
        <p class="help">
          This can never be reached: all your keys together are limited to{" "}
          {number(ownerLimit)}.
        </p>
      )}
    </div>
  );
}

/** When use ends. */
function noteOf({ name, limit, used }: Meter, nowMs: number): Child {
  if (name === "concurrency") return "Running now";
  if (name === "tokensPerDay") {
    return (
      <>
        Today in UTC. Starts again <Time ms={nextDayMs(nowMs)} as="relative" />
      </>
    );
  }
  if (used === 0) return "Nothing in use now";
  const over = used > limit ? `${number(used - limit)} over. ` : "";
  return `${over}All free again in ${secondsOf(used / limit)}`;
}

const nextDayMs = (nowMs: number) => (Math.floor(nowMs / DAY_MS) + 1) * DAY_MS;

/** A share of a limit per minute as the time in which it refills: `12 s`, `3 min`. */
function secondsOf(share: number): string {
  const seconds = Math.max(1, Math.ceil(60 * share));
  return seconds < 120
    ? `${seconds} s`
    : `${number(Math.ceil(seconds / 60))} min`;
}
