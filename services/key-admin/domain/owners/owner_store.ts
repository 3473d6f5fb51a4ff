import { mintOwnerId, randomBase62 } from "@gateway/shared/keys/key";
import {
  KEY_FIELDS,
  type KeyState,
  type Limits,
  ownerLimitsKey,
} from "@gateway/shared/keys/record";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import { z } from "zod";
import { decodeLimits, encodeKey } from "../keys/key_record.ts";
import type { DefaultLimits } from "../keys/settings.ts";
import { createPersist } from "../store/durability.ts";
import {
  asText,
  type Fields,
  readHash,
  readText,
  type StoreDeps,
} from "../store/redis.ts";
import { digest } from "../store/secret.ts";

const accountKey = (ownerId: string) => `acct:{${ownerId}}`;
const mailKey = (email: string) => `mail:${digest(email)}`;
export const OWNERS_KEY = "owners";
const OPERATORS_KEY = "operators";
const firstOwnerKey = "owner:first";

/**
 * A person at an OpenID Connect provider. Issuer and subject together name a person;
 * the address is proved by the provider and allowed by the operator.
 */
export interface Identity {
  issuer: string;
  subject: string;
  email: string;
}

const time = z.coerce.number();
/** An account as it is stored, except for its recovery codes. */
const stored = z.object({
  /** Empty: the first owner before set-up. */
  email: z.string().default(""),
  created_at: time.default(0),
  /** argon2id string; null: cannot sign in with a password (yet). */
  password: z.string().nullable().default(null),
  password_at: time.default(0),
  /** Secret of the authenticator app; null: no second factor. */
  totp: z.string().nullable().default(null),
  /** Null: never, or before this was recorded. */
  signed_in_at: time.nullable().default(null),
  /**
   * When an operator removed the second factor, and who it was, until the owner has
   * seen it: `1763800000000 op@example.org`.
   */
  factor_removed: z.string().default(""),
}).transform(({ email, created_at, password, totp, ...rest }) => {
  const [, atMs, by = ""] = /^(\d+) (.*)$/.exec(rest.factor_removed) ?? [];
  return {
    email,
    createdAtMs: created_at,
    passwordHash: password,
    passwordAtMs: rest.password_at,
    totpSecret: totp,
    signedInAtMs: rest.signed_in_at,
    hasSignedIn: password !== null || rest.signed_in_at !== null,
    factorRemoved: atMs === undefined ? null : { atMs: Number(atMs), by },
  };
});

export interface Account extends z.output<typeof stored> {
  ownerId: string;
  recoveryCodesLeft: number;
  /** Cannot sign in, and every request with one of the keys is refused. */
  isDisabled: boolean;
  isOperator: boolean;
}

export const readEmail = async (redis: RedisLink, ownerId: string) =>
  stored.parse(await readHash(redis, accountKey(ownerId)) ?? {}).email;

const TAKE_ROLE_SCRIPT = defineScript(
  "key-admin/take_role",
  `
if redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) == 1 then return 0 end
redis.call('ZREM', KEYS[1], ARGV[1])
return 1
`,
);

/** Each recovery code is a field of its own: removing the field uses up the code. */
const RECOVERY_FIELD = "recovery:";
const RECOVERY_CODES = 10;
/** 119 random bits, so that a fast hash is enough (ASVS 6.5.2). */
const RECOVERY_CHARS = 20;

/** A code is accepted for three steps of 30 s. */
const STEP_SECONDS = 120;

export interface OwnerStoreDeps extends StoreDeps {
  defaultLimits: DefaultLimits;
}

/**
 * Who owns keys, and how owners sign in; durable like keys. An owner exists from the
 * first key or invitation on.
 */
export type OwnerStore = ReturnType<typeof createOwnerStore>;

export function createOwnerStore(
  { redis, writer, randomBytes, now, defaultLimits }: OwnerStoreDeps,
) {
  const persist = createPersist(writer);

  /** Resolves when the write is on disk. */
  async function write(...command: string[]) {
    const reply = await writer.command(command);
    await persist();
    return reply;
  }

  /**
   * Creates an owner whom the Redis key `pointer` then names, and returns the owner's
   * id. If several calls do so at once, the first to write the pointer wins, and all
   * return its owner. A crash before that leaves an account that nothing refers to.
   */
  async function make(pointer: string, email: string): Promise<string> {
    const ownerId = mintOwnerId(randomBytes);
    const nowMs = String(now());
    const records = [
      [accountKey(ownerId), "email", email, "created_at", nowMs],
      [ownerLimitsKey(ownerId), ...encodeKey({ limits: defaultLimits.owner })],
    ];
    for (const record of records) await writer.command(["HSET", ...record]);
    const set = await writer.command(["SET", pointer, ownerId, "NX"]);
    if (set === null) {
      for (const [key = ""] of records) await writer.command(["DEL", key]);
      return asText(await writer.command(["GET", pointer]));
    }
    await write("ZADD", OWNERS_KEY, nowMs, ownerId);
    return ownerId;
  }

  const store = {
    /** The owner of an address (as {@link parseEmail} returns it), or null. */
    find: (email: string) => readText(redis, mailKey(email)),

    ensure: async (email: string): Promise<string> =>
      await store.find(email) ?? await make(mailKey(email), email),

    /**
     * The owner of the keys created before the set-up, whom the person with the set-up
     * link becomes.
     */
    first: async (): Promise<string> =>
      await readText(redis, firstOwnerKey) ?? await make(firstOwnerKey, ""),

    /**
     * The account of the first owner; null before the set-up, when it has no password.
     */
    async setUpAccount(): Promise<Account | null> {
      const ownerId = await readText(redis, firstOwnerKey) ?? "";
      const account = await store.read(ownerId);
      return account?.passwordHash ? account : null;
    },

    /**
     * The owner of an identity: found by issuer and subject, by e-mail address only the
     * first time (ASVS 6.8.1).
     */
    async ofIdentity({ issuer, subject, email }: Identity): Promise<string> {
      const pointer = `oidc:${digest(JSON.stringify([issuer, subject]))}`;
      const known = await readText(redis, pointer);
      if (known !== null) return known;
      const ownerId = await store.ensure(email);
      await redis.command(["SET", pointer, ownerId, "NX"]);
      return ownerId;
    },

    async read(ownerId: string): Promise<Account | null> {
      const [fields, state, role] = await Promise.all([
        readHash(redis, accountKey(ownerId)),
        redis.command(["HGET", ownerLimitsKey(ownerId), KEY_FIELDS.state]),
        redis.command(["ZSCORE", OPERATORS_KEY, ownerId]),
      ]);
      return fields && {
        ...stored.parse(fields),
        ownerId,
        recoveryCodesLeft: recoveryFields(fields).length,
        isDisabled: state === "disabled",
        isOperator: role !== null,
      };
    },

    async noteSignIn(ownerId: string): Promise<void> {
      const field = ["signed_in_at", String(now())];
      await redis.command(["HSET", accountKey(ownerId), ...field]);
    },

    giveRole: (ownerId: string) =>
      write("ZADD", OPERATORS_KEY, "NX", String(now()), ownerId),

    /** Makes an operator a mere owner. False for the last operator, who stays one. */
    async takeRole(ownerId: string): Promise<boolean> {
      const names = [OPERATORS_KEY];
      const taken = await writer.evalScript(TAKE_ROLE_SCRIPT, {
        keys: names,
        args: [ownerId],
      });
      await persist();
      return taken === 1;
    },

    /**
     * Refuses every request with a key of the owner from the next one on, or no longer.
     */
    setState: (ownerId: string, state: KeyState) =>
      write("HSET", ownerLimitsKey(ownerId), KEY_FIELDS.state, state),

    setPassword(ownerId: string, passwordHash: string) {
      const set = ["password", passwordHash, "password_at", String(now())];
      return write("HSET", accountKey(ownerId), ...set);
    },

    /**
     * Switches the second factor on and returns the recovery codes, which are shown
     * once.
     */
    async enableTotp(ownerId: string, secret: string): Promise<string[]> {
      const codes = Array.from({ length: RECOVERY_CODES }, () => {
        const code = randomBase62(RECOVERY_CHARS, randomBytes);
        return code.replace(/.{5}(?=.)/g, "$&-"); // `x4ZqA-9bTr0-…`
      });
      const fields = codes.flatMap((code) => [recoveryField(code), "1"]);
      await write("HSET", accountKey(ownerId), "totp", secret, ...fields);
      return codes;
    },

    /**
     * Switches the second factor off. If an operator does it (`by`), the owner is told
     * until {@link dismissNotice}.
     */
    async disableTotp(ownerId: string, by?: string): Promise<void> {
      const account = accountKey(ownerId);
      const codes = recoveryFields(await readHash(redis, account) ?? {});
      if (by !== undefined) {
        const notice = ["factor_removed", `${now()} ${by}`];
        await writer.command(["HSET", account, ...notice]);
      }
      await write("HDEL", account, "totp", ...codes);
    },

    async dismissNotice(ownerId: string): Promise<void> {
      await writer.command(["HDEL", accountKey(ownerId), "factor_removed"]);
    },

    async useTotpStep(ownerId: string, step: number): Promise<boolean> {
      const mark = `ticket:step:${digest(`${ownerId} ${step}`)}`;
      const command = ["SET", mark, "1", "NX", "EX", String(STEP_SECONDS)];
      return await writer.command(command) !== null;
    },

    async useRecoveryCode(ownerId: string, code: string): Promise<boolean> {
      const field = recoveryField(code);
      return await write("HDEL", accountKey(ownerId), field) === 1;
    },

    /**
     * Gives an owner without an address this one. False when it belongs to another
     * owner.
     */
    async claim(ownerId: string, email: string): Promise<boolean> {
      const pointer = mailKey(email);
      const set = await writer.command(["SET", pointer, ownerId, "NX"]);
      if (set === null && await readText(writer, pointer) !== ownerId) {
        return false;
      }
      await write("HSET", accountKey(ownerId), "email", email);
      return true;
    },

    limits: async (ownerId: string): Promise<Limits> =>
      decodeLimits(await readHash(redis, ownerLimitsKey(ownerId)) ?? {}),

    setLimits: (ownerId: string, limits: Limits) =>
      write("HSET", ownerLimitsKey(ownerId), ...encodeKey({ limits })),
  };
  return store;
}

const recoveryField = (code: string): string =>
  RECOVERY_FIELD + digest(`recovery ${code.replace(/[^0-9A-Za-z]/g, "")}`);

const recoveryFields = (account: Fields): string[] =>
  Object.keys(account).filter((field) => field.startsWith(RECOVERY_FIELD));
