/** Why requests were refused or failed, in words. */
import { labelOf } from "../../view/texts.tsx";

/** Reasons whose names say too little. */
const REASONS: Readonly<Record<string, string>> = {
  model_server_limit: "Limit of the model server",
  request_bodies: "Too many invalid or very large requests at once",
  budget_held: "Running requests held the rest of a budget",
  model_unpriced: "The model has no price, and there is a budget",
  server: "The service or the model server failed",
  cut: "An error cut off the answer after it had started",
};

/**
 * A reason in words: a limit and whose it is, or what was wrong. It may be from a later
 * version.
 */
export function wordsOf(reason: string): string {
  const [name = "", whose] = reason.split(".");
  const words = REASONS[name] ?? labelOf(name);
  if (whose === "user") return `${words}, of one end user`;
  return whose === "owner" ? `${words}, all keys together` : words;
}
