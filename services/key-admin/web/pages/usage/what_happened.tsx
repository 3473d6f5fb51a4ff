/** Describes the outcome of a request of the log, with its reason. */

import {
  BUDGET_WINDOWS,
  parseBudgetText,
} from "@gateway/shared/keys/budget_state";
import type { FoundRequest } from "../../../domain/requests/request_log.ts";
import { Noted } from "../../view/parts.tsx";
import { money, number, Time } from "../../view/texts.tsx";
import { wordsOf } from "./reasons.ts";

/** The outcomes in words. */
export const OUTCOMES: Readonly<Record<string, string>> = {
  refused: "Refused",
  failed: "Failed",
  cut: "Cut off",
  slow: "Slow",
};

/** The outcome of a request with the reason, and how many more were like it. */
export function whatHappened(
  { outcome, reason, param, more, budget }: FoundRequest,
  currency: string,
) {
  const look = outcome === "failed" || outcome === "cut" ? "bad" : "warn";
  const notes = [
    reason !== "" && wordsOf(reason),
    param !== "" && `Field: ${param}`,
    more > 0 && `and ${number(more)} more in this second`,
  ].filter((text) => text !== false);
  return (
    <Noted
      note={
        <>
          {notes.join("; ")}
          <BudgetNote text={budget} currency={currency} />
        </>
      }
    >
      <span class={`badge ${look}`}>{OUTCOMES[outcome]}</span>
    </Noted>
  );
}

/** The numbers of a budget that refused a request. */
function BudgetNote({ text, currency }: { text: string; currency: string }) {
  const budget = parseBudgetText(text);
  if (budget === null) return null;
  const { name, spent, held, limit, resetMs } = budget;
  const shown = (nanos: number) => money(nanos, currency);
  return (
    <>
      {`. Of ${shown(limit)} for ${BUDGET_WINDOWS[name]}, ${
        shown(spent)
      } were `}
      {`spent and ${shown(held)} held by running requests; `}
      {resetMs === null ? "it is not reset" : (
        <>
          reset at <Time ms={resetMs} as="minute" />
        </>
      )}
    </>
  );
}
