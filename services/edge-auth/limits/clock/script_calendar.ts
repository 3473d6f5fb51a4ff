/** The day and month of budgets, for the admission script. */
import { BudgetDays, calendarText } from "@gateway/shared/keys/budget_calendar";

/** Keeps the calendar that the script got last, until its day is over. */
export class ScriptCalendar {
  readonly #days: BudgetDays;
  #endMs = -Infinity;
  #text = "";

  constructor(zone: string) {
    this.#days = new BudgetDays(zone);
  }

  /** The calendar for a call when Redis is expected to show this time, in Unix ms. */
  at(expectedMs: number): string {
    return expectedMs < this.#endMs ? this.#text : this.keep(expectedMs);
  }

  /** The calendar for calls from now on, after Redis has shown this time. */
  keep(serverMs: number): string {
    const calendar = this.#days.at(serverMs);
    this.#endMs = calendar.day.endMs;
    this.#text = calendarText(calendar);
    return this.#text;
  }
}
