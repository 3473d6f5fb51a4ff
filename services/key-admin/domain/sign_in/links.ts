import { z } from "zod";
import { createTokens, type OneTimeTokens } from "../store/one_time_tokens.ts";
import type { StoreDeps } from "../store/redis.ts";

/**
 * What a link lets its holder do, once:
 * - `set_up`: become the first owner, with an address of their choice;
 * - `invite`: become the owner of an address;
 * - `reset`: choose a new password.
 */
const linkSchema = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("set_up"), ownerId: z.string() }),
  z.object({
    kind: z.enum(["invite", "reset"]),
    ownerId: z.string(),
    email: z.string(),
  }),
]);

/** The purpose of a link. */
export type Link = z.infer<typeof linkSchema>;

/** Opening a link only peeks, since mail scanners follow links. Sending its form uses it up. */
export type LinkStore = OneTimeTokens<Link>;

/** How long a link works. A set-up link is meant for the person at the terminal. */
export const LINK_SECONDS: Readonly<Record<Link["kind"], number>> = {
  set_up: 15 * 60,
  invite: 72 * 3_600,
  reset: 3_600,
};

/** The links on Redis. */
export const createLinks = (
  { redis, randomBytes }: Pick<StoreDeps, "redis" | "randomBytes">,
): LinkStore =>
  createTokens({
    ...{ redis, randomBytes, kind: "link", schema: linkSchema },
    secondsOf: ({ kind }) => LINK_SECONDS[kind],
  });

/** Where a browser opens a link. */
export const linkPath = (secret: string): string => `/link/${secret}`;
