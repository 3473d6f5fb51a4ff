import type { Random } from "../sampling/random.ts";
import type { WorkBudget } from "./budget.ts";

/**
 * What the request says that could be a value. Candidates come best first, and
 * whoever takes one says so, so that two properties do not get the same one.
 */
export interface ValueHints {
  /** Texts for a property of this name and description. */
  texts(name: string, description: string): readonly string[];
  numbers(): readonly number[];
  /** Whether the request says this word, for members of an `enum`. */
  mentions(text: string): boolean;
  take(value: string | number): void;
}

/** What the generator of values works with. */
export interface GeneratorContext {
  /** The document that references point into. */
  root: unknown;
  random: Random;
  hints: ValueHints;
  /** New text of the language model, at most this many tokens. */
  writeProse: (tokensMax: number) => string;
  /** Which properties that are not required are there: all, or those the request says something about. */
  optionalProperties: "all" | "hinted";
  /** For the whole value. Spent, the schema is given up. */
  budget: WorkBudget;
}

/** Where in the value the generator is. */
export interface Place {
  /** The property's name, or that of the array around it. Empty at the root. */
  name: string;
  depth: number;
}

/** The name of a property in words: `departureCity` and `departure_city` are `departure city`. */
export function labelOf(name: string): string {
  return name.replace(/([a-z0-9])([A-Z])/g, "$1 $2").replace(/[_\-.\s]+/g, " ")
    .trim().toLowerCase();
}
