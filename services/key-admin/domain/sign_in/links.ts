import { z } from "zod";
import type { Tickets } from "../store/tickets.ts";

/**
 * What a link lets its holder do, once:
 * - `set_up`: become the first owner, with an address of his choice;
 * - `invite`: become the owner of an address;
 * - `reset`: choose a new password.
 */
export const linkSchema = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("set_up"), ownerId: z.string() }),
  z.object({
    kind: z.enum(["invite", "reset"]),
    ownerId: z.string(),
    email: z.string(),
  }),
]);

/** What a link is for. */
export type Link = z.infer<typeof linkSchema>;

/** Opening a link only peeks: mail scanners follow links. Sending its form uses it up. */
export type LinkStore = Tickets<Link>;

const SECONDS: Readonly<Record<Link["kind"], number>> = {
  /** Goes no further than the terminal that shows it. */
  set_up: 15 * 60,
  invite: 72 * 3_600,
  reset: 3_600,
};

/** How long a link is good. */
export const linkSeconds = (link: Link): number => SECONDS[link.kind];

/** Where a browser opens a link. */
export const linkPath = (secret: string): string => `/link/${secret}`;
