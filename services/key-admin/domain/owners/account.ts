import type { RandomBytes } from "@gateway/shared/process/ids";
import { randomBase62 } from "@gateway/shared/keys/key";
import { defineScript } from "@gateway/shared/redis/script";
import { z } from "zod";
import { confirmDurable, writeDurably } from "../store/durability.ts";
import { accountKey, ticketKey } from "../store/names.ts";
import type { StoreDeps } from "../store/redis.ts";
import { readHash } from "../store/reply.ts";
import { digest } from "../store/secret.ts";

const stored = z.object({
  email: z.string().default(""),
  created_at: z.coerce.number().default(0),
  password: z.string().optional(),
  totp: z.string().optional(),
  recovery: z.string().default(""),
}).transform(({ email, created_at, password, totp, recovery }) => ({
  /** Empty: the first owner before set-up. */
  email,
  createdAtMs: created_at,
  /** argon2id string; null: cannot sign in with a password (yet). */
  passwordHash: password ?? null,
  /** Secret of the authenticator app; null: no second factor. */
  totpSecret: totp ?? null,
  recoveryCodesLeft: recovery.split(",").filter((code) => code !== "").length,
}));

/** How an owner signs in. */
export type Account = z.infer<typeof stored> & { ownerId: string };

const RECOVERY_CODES = 10;
/** 119 random bits, so that a fast hash is enough (ASVS 6.5.2). */
const RECOVERY_CHARS = 20;

/** A code is accepted for three steps of 30 s. */
const STEP_SECONDS = 120;

/**
 * KEYS: 1 the account. ARGV: 1 the digest of a code.
 * Removes it from the list of codes, whose items are joined by commas.
 */
const RECOVERY_SCRIPT = defineScript(
  "key-admin/recovery",
  `
local codes = redis.call('HGET', KEYS[1], 'recovery') or ''
local first, last = string.find(codes, ARGV[1], 1, true)
if not first then return 0 end
codes = string.sub(codes, 1, first - 1) .. string.sub(codes, last + 2)
redis.call('HSET', KEYS[1], 'recovery', codes)
return 1
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
    return { ownerId, ...stored.parse(Object.fromEntries(fields)) };
  }

  async setPassword(ownerId: string, passwordHash: string): Promise<void> {
    const command = ["HSET", accountKey(ownerId), "password", passwordHash];
    await writeDurably(this.#deps.writer, command);
  }

  /** Switches the second factor on and returns the recovery codes, which are shown once. The code of `step` was used for this. */
  async enableTotp(
    ownerId: string,
    secret: string,
    step: number,
  ): Promise<string[]> {
    const codes = mintRecoveryCodes(this.#deps.randomBytes);
    await this.useTotpStep(ownerId, step);
    await writeDurably(this.#deps.writer, [
      ...["HSET", accountKey(ownerId), "totp", secret],
      ...["recovery", codes.map(recoveryDigest).join(",")],
    ]);
    return codes;
  }

  async disableTotp(ownerId: string): Promise<void> {
    const command = ["HDEL", accountKey(ownerId), "totp", "recovery"];
    await writeDurably(this.#deps.writer, command);
  }

  /** Marks a time step as used. False when it was used before. */
  async useTotpStep(ownerId: string, step: number): Promise<boolean> {
    const mark = ticketKey("step", digest(`${ownerId} ${step}`));
    const command = ["SET", mark, "1", "NX", "EX", String(STEP_SECONDS)];
    return await this.#deps.writer.command(command) !== null;
  }

  /** Marks a recovery code as used. False when the owner has no such code. */
  async useRecoveryCode(ownerId: string, code: string): Promise<boolean> {
    const { writer } = this.#deps;
    const [keys, args] = [[accountKey(ownerId)], [recoveryDigest(code)]];
    if (await writer.evalScript(RECOVERY_SCRIPT, keys, args) !== 1) {
      return false;
    }
    await confirmDurable(writer);
    return true;
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
