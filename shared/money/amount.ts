/**
 * Amounts of money: integers of a billionth of the unit of the currency, because sums
 * of fractions drift. All of them are whole numbers that a double holds exactly.
 */

/** Billionths in one unit of the currency. */
export const NANOS_PER_UNIT = 1_000_000_000;
/** The decimals that an amount may have. */
export const DECIMALS_MAX = 9;
/**
 * The largest amount: 9,007,199.254740991. Scripts in Redis calculate with doubles, in
 * which 2^53 is the end of exact integers.
 */
export const AMOUNT_NANOS_MAX = Number.MAX_SAFE_INTEGER;

/** Why a text is no amount, as it follows "expected …, got a text that …". */
export type AmountFault = "form" | "negative" | "precise" | "large";

const DECIMAL = /^(-?)(\d+)(?:\.(\d+))?$/;
const DIGITS_MAX = 40;

/**
 * Reads a decimal: `2.50` is 2,500,000,000 billionths. Neither blanks, exponents, signs
 * nor separators of thousands are read.
 */
export function parseAmount(text: string): number | AmountFault {
  const parts = text.length > DIGITS_MAX ? null : DECIMAL.exec(text);
  if (parts === null) return "form";
  const [, sign, whole = "", decimals = ""] = parts;
  if (sign === "-") return "negative";
  const significant = decimals.replace(/0+$/, "");
  if (significant.length > DECIMALS_MAX) return "precise";
  const nanos = Number(whole + significant.padEnd(DECIMALS_MAX, "0"));
  return nanos > AMOUNT_NANOS_MAX ? "large" : nanos;
}

/** What is wrong with a text that {@link parseAmount} does not read. */
export const AMOUNT_FAULTS: Readonly<Record<AmountFault, string>> = {
  form: 'expected a decimal such as "2.50"',
  negative: "expected an amount that is not negative",
  precise: `expected at most ${DECIMALS_MAX} decimals`,
  large: `expected at most ${formatAmount(AMOUNT_NANOS_MAX)}`,
};

/**
 * Writes an amount with all of its decimals, and none that is 0: 2,500,000,000 is
 * `2.5`.
 */
export function formatAmount(nanos: number): string {
  const digits = String(Math.abs(nanos)).padStart(DECIMALS_MAX + 1, "0");
  const whole = digits.slice(0, -DECIMALS_MAX);
  const decimals = digits.slice(-DECIMALS_MAX).replace(/0+$/, "");
  const sign = nanos < 0 ? "-" : "";
  return `${sign}${whole}${decimals === "" ? "" : `.${decimals}`}`;
}
