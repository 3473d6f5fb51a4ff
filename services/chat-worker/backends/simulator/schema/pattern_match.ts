import type { WorkBudget } from "./budget.ts";
import type { CodeRange, PatternNode } from "./pattern.ts";

/** Whether code point `code` is in a set. */
export function isInSet(
  code: number,
  ranges: readonly CodeRange[],
  isNegated: boolean,
): boolean {
  const isIn = ranges.some(([from, to]) => code >= from && code <= to);
  return isIn !== isNegated;
}

/**
 * Whether the pattern matches somewhere in the text, as JSON Schema's `pattern`
 * does. Follows all ways at once as a set of positions, so no pattern makes the
 * work grow faster than its size times the square of the text's. With the budget
 * spent the answer is no: a text that nobody can check is no good text.
 */
export function matchesPattern(
  pattern: PatternNode,
  text: string,
  budget: WorkBudget,
): boolean {
  const codes = [...text].map((character) => character.codePointAt(0) ?? 0);
  const starts = new Set(codes.keys()).add(codes.length);
  const search: Search = { codes, budget };
  return endsOf(pattern, starts, search).size > 0 && !budget.isSpent;
}

interface Search {
  codes: readonly number[];
  budget: WorkBudget;
}

type Positions = Set<number>;

const NOWHERE: Positions = new Set();

/** Where the node can end when it begins at one of `starts`. */
function endsOf(
  node: PatternNode,
  starts: Positions,
  search: Search,
): Positions {
  if (!search.budget.spend(starts.size + 1) || starts.size === 0) {
    return NOWHERE;
  }
  const { codes } = search;
  switch (node.type) {
    case "set":
      return filterMap(starts, (at) => {
        const code = codes[at];
        return code !== undefined && isInSet(code, node.ranges, node.isNegated)
          ? at + 1
          : undefined;
      });
    case "start":
      return filterMap(starts, (at) => at === 0 ? at : undefined);
    case "end":
      return filterMap(starts, (at) => at === codes.length ? at : undefined);
    case "sequence":
      return node.items.reduce(
        (positions, item) => endsOf(item, positions, search),
        starts,
      );
    case "choice":
      return new Set(
        node.options.flatMap((option) => [...endsOf(option, starts, search)]),
      );
    case "repeat":
      return endsOfRepeat(node, starts, search);
  }
}

function endsOfRepeat(
  node: PatternNode & { type: "repeat" },
  starts: Positions,
  search: Search,
): Positions {
  let current = starts;
  for (let times = 0; times < node.min; times++) {
    current = endsOf(node.item, current, search);
    if (current.size === 0) return current;
  }
  const all = new Set(current);
  for (let times = node.min; times < node.max; times++) {
    const ends = endsOf(node.item, current, search);
    // Only new positions can lead anywhere new: this is also what ends `*`.
    current = filterMap(ends, (at) => all.has(at) ? undefined : at);
    if (current.size === 0) break;
    for (const at of current) all.add(at);
  }
  return all;
}

function filterMap(
  positions: Positions,
  visit: (at: number) => number | undefined,
): Positions {
  const result: Positions = new Set();
  for (const at of positions) {
    const to = visit(at);
    if (to !== undefined) result.add(to);
  }
  return result;
}
