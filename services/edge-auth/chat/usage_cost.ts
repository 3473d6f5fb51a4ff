/** Writes what a request costs into the usage that its answer states. */
import { Buffer } from "node:buffer";
import { type Member, membersOf } from "@gateway/shared/forward/members";
import { responseUsage } from "@gateway/shared/forward/usage";
import { formatAmount } from "@gateway/shared/money/amount";
import type { Usage } from "@gateway/shared/openai/completion";

/** What a usage costs in billionths; null: it has no price. */
export type NanosOf = (usage: Usage) => number | null;

/** In a text, the quotes would be escaped. */
const USAGE = Buffer.from('"usage":{');

/**
 * The same lines, or one body, with `usage.cost` in each that states a usage. A cost
 * that the model server states itself is replaced.
 */
export function withCost(bytes: Uint8Array, nanosOf: NanosOf): Uint8Array {
  const all = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  if (!all.includes(USAGE)) return bytes;
  // As Latin-1, so that positions are the same in text and bytes.
  const lines = all.toString("latin1").split("\n");
  const changed = lines.map((line) => lineWithCost(line, nanosOf));
  return Buffer.from(changed.join("\n"), "latin1");
}

function lineWithCost(line: string, nanosOf: NanosOf): string {
  const usage = memberOf(line, "usage");
  if (usage === undefined || line[usage.from] !== "{") return line;
  const text = line.slice(usage.from, usage.to);
  const counts = responseUsage(JSON.parse(text));
  const nanos = counts === null ? null : nanosOf(counts);
  if (nanos === null) return line;
  const cost = formatAmount(nanos);
  const member = memberOf(text, "cost");
  const edited = member === undefined
    ? `${text.slice(0, -1)},"cost":${cost}}`
    : text.slice(0, member.from) + cost + text.slice(member.to);
  return line.slice(0, usage.from) + edited + line.slice(usage.to);
}

function memberOf(text: string, name: string): Member | undefined {
  return membersOf(text)?.findLast((each) => each.name === name);
}
