/** The accounts of owners in Redis: addresses, second factors, roles, limits. */
import { mintOwnerId, randomBase62 } from "@gateway/shared/keys/key";
import {
  KEY_FIELDS,
  type KeyState,
  type Limits,
  ownerLimitsKey,
} from "@gateway/shared/keys/record";
import type { WallNow } from "@gateway/shared/process/clock";
import { defined } from "@gateway/shared/process/env";
import type { RandomBytes } from "@gateway/shared/process/ids";
import { defineScript, type RedisLink } from "@gateway/shared/redis/link";
import type { RedisReply } from "@gateway/shared/redis/connection";
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
import {
  type ChangeRecord,
  createRecordChanger,
  type RecordChange,
  versionOf,
} from "../audit/record_change.ts";
import takeRoleLua from "./lua/take_role.lua" with { type: "text" };

const accountKey = (ownerId: string) => `acct:{${ownerId}}`;
const mailKey = (email: string) => `mail:${digest(email)}`;
/** Sorted set of the ids of all owners by their time of creation. */
export const OWNERS_KEY = "owners";
const OPERATORS_KEY = "operators";
const FIRST_OWNER_KEY = "owner:first";

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
const storedAccount = z.object({
  /** Empty for the first owner before the set-up. */
  email: z.string().default(""),
  created_at: time.default(0),
  /** An argon2id string; null if the owner cannot sign in with a password (yet). */
  password: z.string().nullable().default(null),
  password_at: time.default(0),
  /** Secret of the authenticator app; null without a second factor. */
  totp: z.string().nullable().default(null),
  /** Null if the owner never signed in, or did before this was recorded. */
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

/** An owner with their credentials, as the console reads them in one call. */
export interface Account extends z.output<typeof storedAccount> {
  ownerId: string;
  recoveryCodesLeft: number;
  /**
   * Whether the owner cannot sign in, and every request with one of their keys is
   * refused.
   */
  isDisabled: boolean;
  isOperator: boolean;
}

/** What requests with the keys of an owner or a project depend on beside these. */
export interface AccountStanding {
  limits: Limits;
  state: KeyState;
  /** Incremented by each change, from 0. A change states the version it is based on. */
  version: number;
}

/**
 * The address of an owner: empty for the first owner before the set-up, null if there
 * is no such owner.
 */
export async function readEmail(
  redis: RedisLink,
  ownerId: string,
): Promise<string | null> {
  const fields = await readHash(redis, accountKey(ownerId));
  return fields && storedAccount.parse(fields).email;
}

const TAKE_ROLE_SCRIPT = defineScript("key-admin/take_role", takeRoleLua);

/** Each recovery code is a field of its own: removing the field uses up the code. */
const RECOVERY_FIELD = "recovery:";
const RECOVERY_CODES = 10;
/** 119 random bits, so that a fast hash is enough (ASVS 6.5.2). */
const RECOVERY_CHARS = 20;

/** A code is accepted for three steps of 30 s. */
const STEP_SECONDS = 120;

/** Dependencies of an {@link OwnerStore}. */
export interface OwnerStoreDeps extends StoreDeps {
  /** The limits of new owners, and of new keys. */
  defaultLimits: DefaultLimits;
}

/**
 * Who owns keys, and how owners sign in; durable like keys. An owner exists from the
 * first key or invitation on.
 */
export class OwnerStore {
  readonly #redis: RedisLink;
  readonly #writer: RedisLink;
  readonly #randomBytes: RandomBytes;
  readonly #now: WallNow;
  readonly #newOwnerLimits: Limits;
  readonly #persist: () => Promise<void>;
  readonly #changeRecord: ChangeRecord;

  constructor(
    { redis, writer, randomBytes, now, defaultLimits }: OwnerStoreDeps,
  ) {
    this.#redis = redis;
    this.#writer = writer;
    this.#randomBytes = randomBytes;
    this.#now = now;
    this.#newOwnerLimits = defaultLimits.owner;
    this.#persist = createPersist(writer);
    this.#changeRecord = createRecordChanger(writer);
  }

  /** The id of the owner of an address (as {@link parseEmail} returns it), or null. */
  find(email: string): Promise<string | null> {
    return readText(this.#redis, mailKey(email));
  }

  /** The id of the owner of an address, who is created if there is none. */
  async ensure(email: string): Promise<string> {
    return await this.find(email) ?? await this.#make(mailKey(email), email);
  }

  /**
   * The owner of the keys created before the set-up, whom the person with the set-up
   * link becomes.
   */
  async first(): Promise<string> {
    return await readText(this.#redis, FIRST_OWNER_KEY) ??
      await this.#make(FIRST_OWNER_KEY, "");
  }

  /**
   * The account of the first owner; null before the set-up, when it has no password.
   */
  async setUpAccount(): Promise<Account | null> {
    const ownerId = await readText(this.#redis, FIRST_OWNER_KEY) ?? "";
    const account = await this.read(ownerId);
    return account?.passwordHash ? account : null;
  }

  /**
   * The owner of an identity: found by issuer and subject, by e-mail address only the
   * first time (ASVS 6.8.1).
   */
  async ofIdentity({ issuer, subject, email }: Identity): Promise<string> {
    const pointer = `oidc:${digest(JSON.stringify([issuer, subject]))}`;
    const knownId = await readText(this.#redis, pointer);
    if (knownId !== null) return knownId;
    const ownerId = await this.ensure(email);
    await this.#redis.command(["SET", pointer, ownerId, "NX"]);
    return ownerId;
  }

  /** The account of an owner; null if there is no such owner. */
  async read(ownerId: string): Promise<Account | null> {
    const [fields, state, role] = await Promise.all([
      readHash(this.#redis, accountKey(ownerId)),
      this.#redis.command(["HGET", ownerLimitsKey(ownerId), KEY_FIELDS.state]),
      this.#redis.command(["ZSCORE", OPERATORS_KEY, ownerId]),
    ]);
    return fields && {
      ...storedAccount.parse(fields),
      ownerId,
      recoveryCodesLeft: recoveryFields(fields).length,
      isDisabled: state === "disabled",
      isOperator: role !== null,
    };
  }

  /** Records that the owner signed in now. Need not survive a loss of power. */
  async noteSignIn(ownerId: string): Promise<void> {
    const field = ["signed_in_at", String(this.#now())];
    await this.#redis.command(["HSET", accountKey(ownerId), ...field]);
  }

  /** Makes an owner an operator, or leaves them one. */
  async giveRole(ownerId: string): Promise<void> {
    await this.#write(
      "ZADD",
      OPERATORS_KEY,
      "NX",
      String(this.#now()),
      ownerId,
    );
  }

  /** Makes an operator a mere owner. False for the last operator, who stays one. */
  async takeRole(ownerId: string): Promise<boolean> {
    const reply = await this.#writer.evalScript(TAKE_ROLE_SCRIPT, {
      keys: [OPERATORS_KEY],
      args: [ownerId],
    });
    await this.#persist();
    return reply === 1;
  }

  /** Stores the hash of a new password, and that it was set now. */
  async setPassword(ownerId: string, passwordHash: string): Promise<void> {
    const set = ["password", passwordHash, "password_at", String(this.#now())];
    await this.#write("HSET", accountKey(ownerId), ...set);
  }

  /**
   * Switches the second factor on and returns the recovery codes, which are shown
   * once.
   */
  async enableTotp(ownerId: string, secret: string): Promise<string[]> {
    const codes = Array.from({ length: RECOVERY_CODES }, () => {
      const code = randomBase62(RECOVERY_CHARS, this.#randomBytes);
      return code.replace(/.{5}(?=.)/g, "$&-"); // `x4ZqA-9bTr0-…`
    });
    const fields = codes.flatMap((code) => [recoveryField(code), "1"]);
    await this.#write("HSET", accountKey(ownerId), "totp", secret, ...fields);
    return codes;
  }

  /**
   * Switches the second factor off. If an operator does it (`by`), the owner sees a
   * notice until {@link dismissNotice}.
   */
  async disableTotp(ownerId: string, by?: string): Promise<void> {
    const account = accountKey(ownerId);
    const codes = recoveryFields(await readHash(this.#redis, account) ?? {});
    if (by !== undefined) {
      const notice = ["factor_removed", `${this.#now()} ${by}`];
      await this.#writer.command(["HSET", account, ...notice]);
    }
    await this.#write("HDEL", account, "totp", ...codes);
  }

  /** Removes the notice that an operator switched the second factor off. */
  async dismissNotice(ownerId: string): Promise<void> {
    await this.#writer.command(["HDEL", accountKey(ownerId), "factor_removed"]);
  }

  /**
   * Uses up the one-time code of a step, see {@link totpStep}. False if it was used
   * before.
   */
  async useTotpStep(ownerId: string, step: number): Promise<boolean> {
    const mark = `ticket:step:${digest(`${ownerId} ${step}`)}`;
    const command = ["SET", mark, "1", "NX", "EX", String(STEP_SECONDS)];
    return await this.#writer.command(command) !== null;
  }

  /** Uses up a recovery code. False if it is wrong or was used before. */
  async useRecoveryCode(ownerId: string, code: string): Promise<boolean> {
    const field = recoveryField(code);
    return await this.#write("HDEL", accountKey(ownerId), field) === 1;
  }

  /** Gives this address to an owner who has none. False when another owner has it. */
  async claim(ownerId: string, email: string): Promise<boolean> {
    const pointer = mailKey(email);
    const set = await this.#writer.command(["SET", pointer, ownerId, "NX"]);
    if (set === null && await readText(this.#writer, pointer) !== ownerId) {
      return false;
    }
    await this.#write("HSET", accountKey(ownerId), "email", email);
    return true;
  }

  /** The limits over all keys of an owner. */
  async limits(ownerId: string): Promise<Limits> {
    return (await this.standing(ownerId)).limits;
  }

  /** What requests with the keys of an account depend on beside these. */
  async standing(accountId: string): Promise<AccountStanding> {
    const fields = await readHash(this.#redis, ownerLimitsKey(accountId)) ?? {};
    return {
      limits: decodeLimits(fields),
      state: fields[KEY_FIELDS.state] === "disabled" ? "disabled" : "enabled",
      version: versionOf(fields),
    };
  }

  /**
   * Changes limits and state of an account, all or nothing, from the next request on:
   * while it is `disabled`, every request with one of its keys is refused. Throws
   * {@link AccountChanged}; false if what is beside the record does not exist.
   */
  async change(
    accountId: string,
    { limits, state }: { limits?: Partial<Limits>; state?: KeyState },
    how: Partial<Pick<RecordChange, "version" | "entries" | "beside">> = {},
  ): Promise<boolean> {
    return await this.#changeRecord(accountId, {
      record: ownerLimitsKey(accountId),
      fields: encodeKey(defined({ limits, state })),
      version: null,
      entries: [],
      ...how,
    });
  }

  /** Resolves when the write is on disk. */
  async #write(...command: string[]): Promise<RedisReply> {
    const reply = await this.#writer.command(command);
    await this.#persist();
    return reply;
  }

  /**
   * Creates an owner whom the Redis key `pointer` then names, and returns the owner's
   * id. If several calls do so at once, the first to write the pointer wins, and all
   * return its owner. A crash before that leaves an account that nothing refers to.
   */
  async #make(pointer: string, email: string): Promise<string> {
    const ownerId = mintOwnerId(this.#randomBytes);
    const nowMs = String(this.#now());
    const account = ["email", email, "created_at", nowMs];
    const limits = encodeKey({ limits: this.#newOwnerLimits });
    const writer = this.#writer;
    await writer.command(["HSET", accountKey(ownerId), ...account]);
    await writer.command(["HSET", ownerLimitsKey(ownerId), ...limits]);
    const set = await writer.command(["SET", pointer, ownerId, "NX"]);
    if (set === null) {
      await writer.command(["DEL", accountKey(ownerId)]);
      await writer.command(["DEL", ownerLimitsKey(ownerId)]);
      return asText(await writer.command(["GET", pointer]));
    }
    await this.#write("ZADD", OWNERS_KEY, nowMs, ownerId);
    return ownerId;
  }
}

const recoveryField = (code: string): string =>
  RECOVERY_FIELD + digest(`recovery ${code.replace(/[^0-9A-Za-z]/g, "")}`);

const recoveryFields = (account: Fields): string[] =>
  Object.keys(account).filter((field) => field.startsWith(RECOVERY_FIELD));
