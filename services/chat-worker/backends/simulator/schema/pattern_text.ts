import { integerBetween, pick, type Random } from "../sampling/random.ts";
import type { WorkBudget } from "./budget.ts";
import type { CodeRange, PatternNode } from "./pattern.ts";
import { isInSet } from "./pattern_match.ts";

const REPEATS_MAX = 4000;
const FRIENDLY =
  "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
/** Tried after the friendly ones: the rest of visible ASCII, then a few others. */
const OTHERS = " -_.,:;!?/@#$%&*+=~^|'\"`()[]{}<>\\éüñ中の🙂";

/** Options of {@link writePattern}. */
export interface PatternTextOptions {
  random: Random;
  /** How often a part that may repeat without end is repeated at most beyond its minimum. */
  extraMax: number;
  budget: WorkBudget;
}

/** A text that a pattern matches, such as `AB-1234` for `^[A-Z]{2}-\d{4}$`. Undefined where none is found. */
export function writePattern(
  pattern: PatternNode,
  options: PatternTextOptions,
): string | undefined {
  return write(pattern, options);
}

function write(
  node: PatternNode,
  writer: PatternTextOptions,
): string | undefined {
  if (!writer.budget.spend(1)) return undefined;
  switch (node.type) {
    case "start":
    case "end":
      return "";
    case "set":
      return pickCharacter(node.ranges, node.isNegated, writer.random);
    case "choice": {
      const option = pick(writer.random, node.options);
      return option && write(option, writer);
    }
    case "sequence":
      return writeAll(node.items, writer);
    case "repeat": {
      const extraMax = Math.min(node.max - node.min, writer.extraMax);
      const times = node.min + integerBetween(writer.random, 0, extraMax);
      if (times > REPEATS_MAX) return undefined;
      return writeAll(Array<PatternNode>(times).fill(node.item), writer);
    }
  }
}

function writeAll(
  nodes: readonly PatternNode[],
  writer: PatternTextOptions,
): string | undefined {
  let text = "";
  for (const node of nodes) {
    const part = write(node, writer);
    if (part === undefined) return undefined;
    text += part;
  }
  return text;
}

function pickCharacter(
  ranges: readonly CodeRange[],
  isNegated: boolean,
  random: Random,
): string | undefined {
  for (const characters of [FRIENDLY, OTHERS]) {
    const fitting = [...characters].filter((character) =>
      isInSet(character.codePointAt(0) ?? 0, ranges, isNegated)
    );
    if (fitting.length > 0) return pick(random, fitting);
  }
  const first = isNegated ? undefined : ranges[0];
  return first && String.fromCodePoint(first[0]);
}
