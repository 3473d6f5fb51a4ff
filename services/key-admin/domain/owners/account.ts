import type { RandomBytes } from "@gateway/shared/process/ids";
import { randomBase62 } from "@gateway/shared/keys/key";
import { z } from "zod";
import { confirmDurable, writeDurably } from "../store/durability.ts";
import { accountKey, usedStepKey } from "../store/names.ts";
import { type Fields, readHash, type StoreDeps } from "../store/redis.ts";
import { digest } from "../store/secret.ts";

const stored = z.object({
  email: z.string().default(""),
  created_at: z.coerce.number().default(0),
  password: z.string().nullable().default(null),
  totp: z.string().nullable().default(null),
});

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

/** Each recovery code is a field of its own, so that removing it also uses it up. */
const RECOVERY_FIELD = "recovery:";
const RECOVERY_CODES = 10;
/** 119 random bits, so that a fast hash is enough (ASVS 6.5.2). */
const RECOVERY_CHARS = 20;

/** A code is accepted for three steps of 30 s. */
const STEP_SECONDS = 120;

/** How owners sign in: accounts in Redis, durable like keys. */
export type AccountStore = ReturnType<typeof createAccountStore>;

export function createAccountStore(
  { redis, writer, randomBytes }: Omit<StoreDeps, "now">,
) {
  return {
    /** Null when there is no such owner. */
    async read(ownerId: string): Promise<Account | null> {
      const fields = await readHash(redis, accountKey(ownerId));
      if (fields === null) return null;
      const { email, created_at, password, totp } = stored.parse(fields);
      return {
        ...{ ownerId, email, createdAtMs: created_at },
        ...{ passwordHash: password, totpSecret: totp },
        recoveryCodesLeft: recoveryFields(fields).length,
      };
    },

    async setPassword(ownerId: string, passwordHash: string): Promise<void> {
      const command = ["HSET", accountKey(ownerId), "password", passwordHash];
      await writeDurably(writer, command);
    },

    /** Switches the second factor on and returns the recovery codes, which are shown once. */
    async enableTotp(ownerId: string, secret: string): Promise<string[]> {
      const codes = mintRecoveryCodes(randomBytes);
      const fields = codes.flatMap((code) => [recoveryField(code), "1"]);
      const command = ["HSET", accountKey(ownerId), "totp", secret, ...fields];
      await writeDurably(writer, command);
      return codes;
    },

    async disableTotp(ownerId: string): Promise<void> {
      const account = accountKey(ownerId);
      const codes = recoveryFields(await readHash(redis, account) ?? {});
      await writeDurably(writer, ["HDEL", account, "totp", ...codes]);
    },

    /** Marks a time step as used. False when it was used before. */
    async useTotpStep(ownerId: string, step: number): Promise<boolean> {
      const mark = usedStepKey(digest(`${ownerId} ${step}`));
      const command = ["SET", mark, "1", "NX", "EX", String(STEP_SECONDS)];
      return await writer.command(command) !== null;
    },

    /** Uses a recovery code up. False when the owner has no such code. */
    async useRecoveryCode(ownerId: string, code: string): Promise<boolean> {
      const command = ["HDEL", accountKey(ownerId), recoveryField(code)];
      if (await writer.command(command) !== 1) return false;
      await confirmDurable(writer);
      return true;
    },
  };
}

/** `x4ZqA-9bTr0-…` */
function mintRecoveryCodes(randomBytes: RandomBytes): string[] {
  return Array.from(
    { length: RECOVERY_CODES },
    () =>
      randomBase62(RECOVERY_CHARS, randomBytes).replace(/.{5}(?=.)/g, "$&-"),
  );
}

const recoveryField = (code: string): string =>
  RECOVERY_FIELD + digest(`recovery ${code.replace(/[^0-9A-Za-z]/g, "")}`);

const recoveryFields = (account: Fields): string[] =>
  Object.keys(account).filter((field) => field.startsWith(RECOVERY_FIELD));
