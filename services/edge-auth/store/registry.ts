/**
 * How an edge reads and writes what it keeps of long work in Redis: with patience, and
 * with lists of what some edge has to look after.
 */
import {
  defineScript,
  type RedisLink,
  type RedisScript,
} from "@gateway/shared/redis/link";
import { redisFailure } from "../limits/refusal.ts";
import claimDueLua from "./claim_due.lua" with { type: "text" };

/** The script that takes what is due: an edge loads it. */
export const CLAIM_DUE = defineScript("claim_due", claimDueLua);

/** Nobody waits at a client for these calls as long as for an admission. */
const PATIENT = { deadlineMs: 1_000 };

/** Calls to Redis; they reject with `service_unavailable` without it. */
export class Registry {
  readonly #redis: Pick<RedisLink, "command" | "evalScript">;

  constructor(redis: Pick<RedisLink, "command" | "evalScript">) {
    this.#redis = redis;
  }

  /** Runs a command, by its name and arguments. */
  async command(...line: string[]): Promise<unknown> {
    try {
      return await this.#redis.command(line, PATIENT);
    } catch (cause) {
      throw redisFailure(cause);
    }
  }

  /** Runs a script. */
  async run(
    script: RedisScript,
    keys: string[],
    args: string[],
  ): Promise<unknown> {
    try {
      return await this.#redis.evalScript(script, { keys, args }, PATIENT);
    } catch (cause) {
      throw redisFailure(cause);
    }
  }

  /** Takes members of a list that are due; they are due again after `againMs`. */
  async claimDue(
    list: string,
    { countMax, againMs }: { countMax: number; againMs: number },
  ): Promise<string[]> {
    const args = [String(countMax), String(againMs)];
    const due = await this.run(CLAIM_DUE, [list], args);
    return (Array.isArray(due) ? due : []).map(String);
  }
}
