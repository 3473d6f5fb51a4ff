/** `keys create …`, for one key whose state is in Redis. */
import { askRedis, hasFault, logLine, writeError } from "./words.ts";

if (hasFault("keys", "dies")) {
  writeError("Cannot reach redis");
  Deno.exit(69);
}
await askRedis(Deno.env.get("REDIS_URL"), "SET key_standin enabled");
const key = `sk-Cg${crypto.randomUUID().replaceAll("-", "")}`;
logLine({ id: "key_standin", key });
