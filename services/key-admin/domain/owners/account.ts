import type { RandomBytes } from "@gateway/shared/process/ids";
import { randomBase62 } from "@gateway/shared/keys/key";
import { defineScript, type RedisScript } from "@gateway/shared/redis/script";
import { z } from "zod";
import { confirmDurable, writeDurably } from "../store/durability.ts";
import { accountKey } from "../store/names.ts";
import type { StoreDeps } from "../store/redis.ts";
import { readHash } from "../store/reply.ts";
import { digest } from "../store/secret.ts";

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
/** 119 random bits, so that a fast hash is enough (ASVS 6.5.2). */
const RECOVERY_CHARS = 20;

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

/** How owners sign in: accounts in Redis, durable like keys. */
export class AccountStore {
  readonly #deps: Omit<StoreDeps, "now">;

  constructor(deps: Omit<StoreDeps, "now">) {
    this.#deps = deps;
  }

  /** Null when there is no such owner. */
  async read(ownerId: string): Promise<Account | null> {
    const fields = await readHash(this.#deps.redis, accountKey(ownerId));
    if (fields.size === 0) return null;
    return { ownerId, ...account.parse(Object.fromEntries(fields)) };
  }

  async setPassword(ownerId: string, passwordHash: string): Promise<void> {
    await this.#write(
      ["HSET", accountKey(ownerId), "password", passwordHash],
    );
  }

  /** Switches the second factor on and gives the recovery codes, which are shown once. */
  async enableTotp(
    ownerId: string,
    secret: string,
    step: number,
  ): Promise<string[]> {
    const codes = mintRecoveryCodes(this.#deps.randomBytes);
    await this.#write([
      ...["HSET", accountKey(ownerId), "totp", secret],
      ...["totp_step", String(step)],
      ...["recovery", codes.map(recoveryDigest).join(",")],
    ]);
    return codes;
  }

  async disableTotp(ownerId: string): Promise<void> {
    await this.#write(
      ["HDEL", accountKey(ownerId), "totp", "totp_step", "recovery"],
    );
  }

  /** Marks a time step as used. False when it, or a later one, was used before. */
  async useTotpStep(ownerId: string, step: number): Promise<boolean> {
    return await this.#use(STEP_SCRIPT, ownerId, String(step));
  }

  /** Marks a recovery code as used. False when the owner has no such code. */
  async useRecoveryCode(ownerId: string, code: string): Promise<boolean> {
    if (!await this.#use(RECOVERY_SCRIPT, ownerId, recoveryDigest(code))) {
      return false;
    }
    await confirmDurable(this.#deps.writer);
    return true;
  }

  async #use(
    script: RedisScript,
    ownerId: string,
    value: string,
  ): Promise<boolean> {
    const { writer } = this.#deps;
    return await writer.evalScript(script, [accountKey(ownerId)], [value]) ===
      1;
  }

  #write(command: string[]): Promise<void> {
    return writeDurably(this.#deps.writer, command);
  }
}

/** `x4ZqA-9bTr0-…` */
function mintRecoveryCodes(randomBytes: RandomBytes): string[] {
  return Array.from(
    { length: RECOVERY_CODES },
    () =>
      randomBase62(RECOVERY_CHARS, randomBytes).replace(/.{5}(?=.)/g, "$&-"),
  );
}

const recoveryDigest = (code: string): string =>
  digest(`recovery ${code.replace(/[^0-9A-Za-z]/g, "")}`);

const account = z.object({
  email: z.string().default(""),
  created_at: z.coerce.number().default(0),
  password: z.string().optional(),
  totp: z.string().optional(),
  recovery: z.string().default(""),
}).transform(({ email, created_at, password, totp, recovery }) => ({
  email,
  createdAtMs: created_at,
  passwordHash: password ?? null,
  totpSecret: totp ?? null,
  recoveryCodesLeft: recovery.split(",").filter((code) => code !== "").length,
}));
