/** `keys create …` and `keys show ID`, for one key whose state is in Redis. */
import { askRedis, hasFault, logLine, writeError } from "./words.ts";

const id = "key_standin";
const redis = Deno.env.get("REDIS_URL");
if (hasFault("keys", "dies")) {
  writeError("Cannot reach redis");
  Deno.exit(69);
}
if (Deno.args[1] === "create") {
  await askRedis(redis, `SET ${id} enabled`);
  logLine({ id, key: `sk-Cg${crypto.randomUUID().replaceAll("-", "")}` });
} else {
  const state = await askRedis(redis, `GET ${Deno.args[2]}`);
  if (state.startsWith("$")) Deno.exit(1);
  logLine({ id, state, expired: false });
}
