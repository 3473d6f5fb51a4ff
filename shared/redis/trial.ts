import type { MonotonicNow } from "../process/clock.ts";
import type { RedisReply } from "./connection.ts";
import {
  isDenied,
  type RedisReplyError,
  RedisUnavailableError,
} from "./errors.ts";

export interface TrialOptions {
  now: MonotonicNow;
  /** Makes the call that works only where the server does its work. */
  probe: () => Promise<RedisReply>;
  onWorks: () => void;
  onRefuses: (reason: string, cause: unknown) => void;
}

/**
 * Tells whether a server that answers does its work. One refusal says that it does
 * not; that it does again is not believed of the next best answer (a full server
 * still reads, and says PONG), but of a probe.
 */
export interface Trial {
  /** A call got what it asked for. */
  worked(args: readonly string[]): void;
  /** A call was refused, see `isRefusal`. */
  refused(
    error: RedisUnavailableError | RedisReplyError,
    args: readonly string[],
  ): void;
  /** Sends the probe, unless one is under way. */
  probe(): void;
  /** Forgets what was refused: the connection is a new one. */
  renew(): void;
}

/**
 * The probe does not need every right that calls need. So a refusal for want of
 * rights is over when the same call works; where nobody makes it, after this long.
 */
const DENIED_MS = 10_000;

export function createTrial(options: TrialOptions): Trial {
  const { now, onWorks, onRefuses } = options;
  let isProbing = false;
  let denied: { call: string; untilMs: number } | null = null;

  const probe = () => {
    if (isProbing) return;
    isProbing = true;
    options.probe().then(() => {
      if (denied !== null && now() < denied.untilMs) return;
      denied = null;
      onWorks();
    }).catch((error) => {
      // Of other failures every call is told, this one included.
      if (isDenied(error)) onRefuses("denied", error);
    }).finally(() => {
      isProbing = false;
    });
  };

  return {
    worked(args) {
      if (denied === null || callOf(args) !== denied.call) return;
      denied = null;
      probe();
    },
    refused(error, args) {
      if (error instanceof RedisUnavailableError) {
        return onRefuses(error.reason, error);
      }
      denied = { call: callOf(args), untilMs: now() + DENIED_MS };
      onRefuses("denied", error);
    },
    probe,
    renew() {
      denied = null;
      probe();
    },
  };
}

/** What a call asks for: a script, or a command. */
function callOf([command = "", script = ""]: readonly string[]): string {
  return command === "EVALSHA" ? script : command;
}
