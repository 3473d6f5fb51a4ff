/** The state of a budget, as refusals, the request log and the console tell it. */

/** The budgets, in the words of the admission script, and what each is for. */
export const BUDGET_WINDOWS = {
  budget_day: "this day",
  budget_month: "this month",
  budget_total: "all time",
} as const;
/** A budget, in the words of the admission script. */
export type BudgetName = keyof typeof BUDGET_WINDOWS;

/** A budget and its use, in billionths. */
export interface BudgetState {
  readonly name: BudgetName;
  readonly limit: number;
  /** May be more than the limit: what ran when the rest was spent. */
  readonly spent: number;
  /** What running requests hold of it. */
  readonly held: number;
  /** When it is reset, in Unix ms; null: never. */
  readonly resetMs: number | null;
}

/** Whether a word is a budget. */
export const isBudgetName = (word: unknown): word is BudgetName =>
  typeof word === "string" && Object.hasOwn(BUDGET_WINDOWS, word);

const STATE = /^(\w+) (\d+) (-?\d+) (-?\d+) (\d+)$/;

/** A state as the request log has it: name, limit, spent, held and reset, or 0. */
export const budgetText = (
  { name, limit, spent, held, resetMs }: BudgetState,
): string => [name, limit, spent, held, resetMs ?? 0].join(" ");

/** Reads what {@link budgetText} writes; null for another text. */
export function parseBudgetText(text: string): BudgetState | null {
  const [, name, ...amounts] = STATE.exec(text) ?? [];
  if (!isBudgetName(name)) return null;
  const [limit = 0, spent = 0, held = 0, resetMs = 0] = amounts.map(Number);
  return { name, limit, spent, held, resetMs: resetMs === 0 ? null : resetMs };
}
