/** For how long the old key of a rotation goes on working. */
import { keysOf } from "@gateway/shared/process/env";
import { z } from "zod";

/** When the old key of a rotation stops working: how long after it, and in words. */
export const GRACES = {
  now: { ms: 0, text: "immediately" },
  "1h": { ms: 3_600_000, text: "in 1 hour" },
  "24h": { ms: 86_400_000, text: "in 24 hours" },
  "7d": { ms: 7 * 86_400_000, text: "in 7 days" },
} as const;

/** The name of one of the {@link GRACES}, as forms and the command line take it. */
export const graceSchema = z.enum(
  keysOf(GRACES),
  `One of ${keysOf(GRACES).join(", ")}`,
);
