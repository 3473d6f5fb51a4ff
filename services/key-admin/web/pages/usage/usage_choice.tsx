/** The choice of the time on pages of usage, and of the stacks of their bars. */

import {
  parseSpan,
  PRESETS,
  type SpanTexts,
  type UsageSpan,
} from "../../../domain/usage/span.ts";
import {
  type Grouping,
  GROUPINGS,
} from "../../../domain/usage/usage_reports.ts";
import type { ConsoleContext } from "../../context.ts";
import { address, Field, Tabs } from "../../view/parts.tsx";

/** The choice in the address of a page of usage. */
export interface UsageChoice {
  texts: SpanTexts;
  /** Null if the bars are not stacked. */
  by: Grouping | null;
  /** Null if the address has a mistake. */
  span: UsageSpan | null;
  /** The mistake in the address; undefined if there is none. */
  error: string | undefined;
  /** The time zone of the gateway, which is meant where the address names none. */
  defaultZone: string;
}

const LABELS = {
  from: "First day",
  to: "Last day",
  zone: "Time zone",
  range: "Time",
} as const;

/** Reads the choice. Other members of the address are ignored, as on all pages. */
export function choiceOf(c: ConsoleContext): UsageChoice {
  const { now, budgetZone: defaultZone } = c.var.deps;
  const text = (name: string) => (c.req.query(name) ?? "").trim();
  const texts = {
    range: text("range"),
    from: text("from"),
    to: text("to"),
    zone: text("zone"),
  };
  const by = GROUPINGS.find((each) => each === text("by")) ?? null;
  const span = parseSpan(texts, { nowMs: now(), defaultZone });
  return "message" in span
    ? {
      texts,
      by,
      span: null,
      error: `${LABELS[span.field]}: ${span.message}.`,
      defaultZone,
    }
    : { texts, by, span, error: undefined, defaultZone };
}

/** The same time and stacks at another address, such as that of the file. */
export const choiceAddress = (
  path: string,
  { texts, by }: Pick<UsageChoice, "texts" | "by">,
): string => address(path, { ...texts, by: by ?? "" });

const PRESET_TABS = Object.entries(PRESETS);

/** Links to times with a name and to stacks, and a form for any days and time zone. */
export function ChoiceForm({ base, choice, groupings }: {
  base: string;
  choice: UsageChoice;
  groupings: readonly Grouping[];
}) {
  const { texts, by, span, error, defaultZone } = choice;
  const { zone } = texts;
  const isChosen = texts.from !== "" || texts.to !== "" || zone !== "";
  return (
    <>
      <div class="row between">
        <Tabs
          label="Time"
          current={span?.preset ?? undefined}
          tabs={PRESET_TABS}
          to={(range) =>
            choiceAddress(base, { texts: { ...NO_TEXTS, range, zone }, by })}
        />
        <a
          class="button small"
          href={choiceAddress(`${base}/export.csv`, {
            texts: { ...texts, range: texts.range || "24h" },
            by,
          })}
        >
          Download CSV
        </a>
      </div>
      <details open={isChosen || error !== undefined}>
        <summary>Other days or time zone</summary>
        <form class="card" method="get" action={base}>
          <div class="pair">
            <Field
              id="from"
              label={LABELS.from}
              type={dateOr(texts.from)}
              value={texts.from || span?.from || ""}
            />
            <Field
              id="to"
              label={LABELS.to}
              type={dateOr(texts.to)}
              value={texts.to || span?.to || ""}
            />
            <Field
              id="zone"
              label={LABELS.zone}
              value={zone || defaultZone}
              list="zones"
              maxlength={60}
              autocomplete="off"
            />
          </div>
          <datalist id="zones">
            <option value={defaultZone} />
            <option value="UTC" />
          </datalist>
          {by && <input type="hidden" name="by" value={by} />}
          <div class="row">
            <button type="submit">Show</button>
            <button type="button" data-zone="zone" hidden />
          </div>
        </form>
      </details>
      <Tabs
        label="Bars by"
        current={by ?? ""}
        tabs={[
          ["", "In all"],
          ...groupings.map((name) => [name, `By ${name}`] as const),
        ]}
        to={(name) =>
          choiceAddress(base, {
            texts,
            by: groupings.find((each) => each === name) ?? null,
          })}
      />
    </>
  );
}

const NO_TEXTS = { from: "", to: "" } as const;

/** Browsers show nothing in a field for dates whose text is none. */
const dateOr = (text: string): "date" | "text" =>
  text === "" || /^\d{4}-\d\d-\d\d$/.test(text) ? "date" : "text";
