import type { RandomBytes } from "@gateway/shared/process/ids";
import { randomBase62 } from "@gateway/shared/keys/key";
import { defineScript } from "@gateway/shared/redis/script";
import type { RedisLink } from "@gateway/shared/redis/link";
import { z } from "zod";
import { digest } from "../store/secret.ts";
import { confirmDurable } from "../store/durability.ts";
import { accountKey } from "../store/names.ts";
import { asFields, asNumber } from "../store/reply.ts";

/** How an owner signs in. */
export interface Account {
  ownerId: string;
  /** Empty: the first owner before set-up. */
  email: string;
  createdAtMs: number;
  /** argon2id string; null: cannot sign in with a password (yet). */
  passwordHash: string | null;
  /** Secret of the authenticator app; null: no second factor. */
  totpSecret: string | null;
  recoveryCodesLeft: number;
}

const RECOVERY_CODES = 10;
const RECOVERY_CHARS = 20;
const RECOVERY_GROUP = 5;

/** Reads and changes how owners sign in. */
export interface AccountStore {
  read(ownerId: string): Promise<Account | null>;
  setPassword(ownerId: string, passwordHash: string): Promise<void>;
  /** Switches the second factor on and gives the recovery codes, which are shown once. */
  enableTotp(ownerId: string, secret: string, step: number): Promise<string[]>;
  disableTotp(ownerId: string): Promise<void>;
  /** Uses a time step up. False when it, or a later one, was used before. */
  useTotpStep(ownerId: string, step: number): Promise<boolean>;
  /** Uses a recovery code up. False when it is none of the owner's. */
  useRecoveryCode(ownerId: string, code: string): Promise<boolean>;
}

/** Accounts in Redis, durable like keys. */
export function createAccountStore(
  { redis, writer, randomBytes }: {
    redis: RedisLink;
    writer: RedisLink;
    randomBytes: RandomBytes;
  },
): AccountStore {
  const write = async (command: string[]) => {
    await writer.command(command);
    await confirmDurable(writer);
  };
  return {
    read: async (ownerId) =>
      decode(
        ownerId,
        asFields(await redis.command(["HGETALL", accountKey(ownerId)])),
      ),
    setPassword: (ownerId, passwordHash) =>
      write(["HSET", accountKey(ownerId), "password", passwordHash]),
    enableTotp: async (ownerId, secret, step) => {
      const codes = mintRecoveryCodes(randomBytes);
      await write([
        ...["HSET", accountKey(ownerId), "totp", secret],
        ...["totp_step", String(step)],
        ...["recovery", codes.map(recoveryDigest).join(",")],
      ]);
      return codes;
    },
    disableTotp: (ownerId) =>
      write(["HDEL", accountKey(ownerId), "totp", "totp_step", "recovery"]),
    useTotpStep: async (ownerId, step) =>
      asNumber(
        await writer.evalScript(STEP_SCRIPT, [accountKey(ownerId)], [
          String(step),
        ]),
      ) === 1,
    useRecoveryCode: async (ownerId, code) => {
      const used = await writer.evalScript(
        RECOVERY_SCRIPT,
        [accountKey(ownerId)],
        [recoveryDigest(code)],
      );
      if (asNumber(used) !== 1) return false;
      await confirmDurable(writer);
      return true;
    },
  };
}

const STEP_SCRIPT = defineScript(
  "key-admin/totp-step",
  `
local last = tonumber(redis.call('HGET', KEYS[1], 'totp_step')) or 0
if tonumber(ARGV[1]) <= last then return 0 end
redis.call('HSET', KEYS[1], 'totp_step', ARGV[1])
return 1
`,
);

const RECOVERY_SCRIPT = defineScript(
  "key-admin/recovery",
  `
local codes, left, found = redis.call('HGET', KEYS[1], 'recovery') or '', {}, 0
for code in string.gmatch(codes, '[^,]+') do
  if code == ARGV[1] then found = 1 else table.insert(left, code) end
end
if found == 1 then redis.call('HSET', KEYS[1], 'recovery', table.concat(left, ',')) end
return found
`,
);

/** `x4ZqA-9bTr0-…`: 119 random bits each, so that a fast hash is enough (ASVS 6.5.2). */
function mintRecoveryCodes(randomBytes: RandomBytes): string[] {
  return Array.from({ length: RECOVERY_CODES }, () => {
    const text = randomBase62(RECOVERY_CHARS, randomBytes);
    return Array.from(
      { length: RECOVERY_CHARS / RECOVERY_GROUP },
      (_, at) => text.slice(at * RECOVERY_GROUP, (at + 1) * RECOVERY_GROUP),
    ).join("-");
  });
}

const recoveryDigest = (code: string): string =>
  digest(`recovery ${code.replace(/[^0-9A-Za-z]/g, "")}`);

const stored = z.object({
  email: z.string().default(""),
  created_at: z.coerce.number().default(0),
  password: z.string().optional(),
  totp: z.string().optional(),
  recovery: z.string().default(""),
});

function decode(
  ownerId: string,
  fields: ReadonlyMap<string, string>,
): Account | null {
  if (fields.size === 0) return null;
  const account = stored.parse(Object.fromEntries(fields));
  return {
    ownerId,
    email: account.email,
    createdAtMs: account.created_at,
    passwordHash: account.password ?? null,
    totpSecret: account.totp ?? null,
    recoveryCodesLeft:
      account.recovery.split(",").filter((code) => code !== "").length,
  };
}
