/**
 * How much of a property is tried: less in the usual run, all of it by `deno task
 * test:long`, which sets `TEST_AMOUNTS`.
 */
export const amountOf = (
  { usual, full }: { usual: number; full: number },
): number => Deno.env.get("TEST_AMOUNTS") === "full" ? full : usual;
