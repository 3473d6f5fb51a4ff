/** The day and month that the admission script is told. */
import { BudgetDays, calendarText } from "@gateway/shared/keys/budget_calendar";

/** Keeps the calendar that was told last, until its day is over. */
export class ToldCalendar {
  readonly #days: BudgetDays;
  #endMs = -Infinity;
  #text = "";

  constructor(zone: string) {
    this.#days = new BudgetDays(zone);
  }

  /** What to tell when Redis is expected to show this time, in Unix ms. */
  at(expectedMs: number): string {
    return expectedMs < this.#endMs ? this.#text : this.keep(expectedMs);
  }

  /** What to tell now that Redis has shown this time. */
  keep(serverMs: number): string {
    const calendar = this.#days.at(serverMs);
    this.#endMs = calendar.day.endMs;
    this.#text = calendarText(calendar);
    return this.#text;
  }
}
