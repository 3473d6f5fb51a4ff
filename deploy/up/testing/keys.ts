import { randomBytes } from "node:crypto";
import { hashKeyValue } from "@gateway/shared/keys/key";
import { hashKey, KEY_FIELDS, recordKey } from "@gateway/shared/keys/record";
import { redisCall } from "../redis_call.ts";
import { hasFault, logLine, writeError } from "./stand_in.ts";

/** `create --description D --json`, writing what the launcher looks at later. */
if (hasFault("keys", "dies")) {
  writeError("Cannot reach redis");
  Deno.exit(1);
}
const key = `sk-Cg${randomBytes(23).toString("hex")}`;
const principal = { keyId: "key_standin", ownerId: "own_standin" };
const hash = hashKeyValue(key);
await redisCall({ url: Deno.env.get("REDIS_URL") ?? "" }, [
  ["SET", hashKey(hash), `${principal.keyId}:${principal.ownerId}`],
  [
    "HSET",
    recordKey(principal),
    KEY_FIELDS.state,
    "enabled",
    KEY_FIELDS.expiresAtMs,
    "0",
    KEY_FIELDS.description,
    Deno.args[2] ?? "",
  ],
], 2_000);
logLine({ id: principal.keyId, key });
