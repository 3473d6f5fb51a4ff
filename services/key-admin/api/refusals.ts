/** What the errors of the domain are to callers of the admin API. */
import { BusUnavailableError } from "@gateway/shared/bus/link";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import { AdminKeyRefused } from "../domain/admin_keys/admin_key_store.ts";
import { AccountChanged } from "../domain/audit/record_change.ts";
import { KeyRefused } from "../domain/keys/key_refused.ts";
import { OverrideRefused } from "../domain/models/override_store.ts";
import { OperatorRefused } from "../domain/operators/operators.ts";
import { ProjectRefused } from "../domain/projects/project_refused.ts";
import { NotDurable } from "../domain/store/durability.ts";
import { BadCursor } from "../domain/store/redis.ts";
import { type ADMIN_ERRORS, AdminRefused } from "./route.ts";

type Code = keyof typeof ADMIN_ERRORS;

/** An error as callers see it; `internal_error` for what nobody expected. */
export function asRefused(error: unknown): AdminRefused {
  if (error instanceof AdminRefused) return error;
  const cause = { cause: error };
  if (error instanceof BadCursor) {
    const options = { ...cause, param: "after" };
    return new AdminRefused("invalid_value", error.message, options);
  }
  if (error instanceof RedisUnavailableError || error instanceof NotDurable) {
    const message = error instanceof NotDurable || error.mayHaveRun
      ? "The database did not answer in time: the change may or may not have been made"
      : "The database does not answer. Try again in a moment";
    return new AdminRefused("unavailable", message, cause);
  }
  const code = codeOf(error);
  return code !== undefined && error instanceof Error
    ? new AdminRefused(code, error.message, cause)
    : new AdminRefused(
      "internal_error",
      "Something went wrong on our side",
      cause,
    );
}

function codeOf(error: unknown): Code | undefined {
  if (error instanceof KeyRefused) {
    if (error.reason === "changed") return "precondition_failed";
    return error.reason === "not_found" ? "not_found" : "conflict";
  }
  if (error instanceof ProjectRefused || error instanceof AdminKeyRefused) {
    const { reason } = error;
    const isMissing = reason === "not_found" || reason === "not_member";
    return isMissing ? "not_found" : "conflict";
  }
  if (error instanceof AccountChanged) return "precondition_failed";
  if (error instanceof BusUnavailableError) return "unavailable";
  if (error instanceof OperatorRefused || error instanceof OverrideRefused) {
    return "conflict";
  }
  return undefined;
}
