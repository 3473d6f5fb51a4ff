import { z } from "zod";
import { asTextOrNull, type StoreDeps } from "../store/redis.ts";
import { digest, isSecret, mintSecret } from "../store/secret.ts";

/**
 * What a link lets its holder do, once, and for how long in seconds. Whoever opens a
 * set-up link becomes the first owner.
 */
export const LINK_SECONDS = {
  set_up: 15 * 60,
  invite: 72 * 3_600,
  reset: 3_600,
};
export const LINK_TIMES = {
  set_up: "15 minutes",
  invite: "3 days",
  reset: "1 hour",
};

const linkSchema = z.object({
  kind: z.enum(["set_up", "invite", "reset"]),
  ownerId: z.string(),
});
export type Link = z.infer<typeof linkSchema>;
const stored = linkSchema.extend({ madeAtMs: z.number().default(Infinity) });

const linkKey = (secret: string) => `ticket:link:${digest(secret)}`;

export type LinkStore = ReturnType<typeof createLinkStore>;

/** The links that work now. Only the digest of a link's secret is stored. */
export function createLinkStore(
  { redis, randomBytes, now }: Omit<StoreDeps, "writer">,
) {
  const get = async (command: "GET" | "GETDEL", secret: string) => {
    if (!isSecret(secret)) return null;
    const reply = await redis.command([command, linkKey(secret)]);
    const text = asTextOrNull(reply);
    return text === null ? null : stored.parse(JSON.parse(text));
  };
  return {
    async make(link: Link): Promise<string> {
      const secret = mintSecret(randomBytes);
      const seconds = String(LINK_SECONDS[link.kind]);
      const text = JSON.stringify({ ...link, madeAtMs: now() });
      await redis.command(["SET", linkKey(secret), text, "EX", seconds]);
      return secret;
    },

    /**
     * The link of a secret; null when it has expired, was used or never existed. Does
     * not use it up, since mail scanners follow links.
     */
    peek: (secret: string) => get("GET", secret),

    /** The same, once: only one of several calls at the same time gets the link. */
    use: (secret: string) => get("GETDEL", secret),
  };
}

export const linkPath = (secret: string): string => `/link/${secret}`;
