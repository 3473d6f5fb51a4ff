/** Who an application calls the gateway for, as a request says it. */
import { endUserHeader } from "@gateway/shared/keys/end_user";
import { isJsonObject } from "@gateway/shared/process/error_text";
import type { EndUserNames } from "../limits/callers/end_users.ts";
import { SESSION_HEADERS } from "./affinity.ts";

/** A request, as far as it may name its end user. */
export interface EndUserRequest {
  /** By name in lower case. */
  readonly headers: {
    readonly [name: string]: string | string[] | undefined;
  };
  /** The parsed body, or the fields of a form. Of it only some texts are kept. */
  readonly body: unknown;
}

/** Claude Code writes the id of its session into what Anthropic calls the user. */
const SESSION = /session.{0,8}?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/;

/**
 * How to read the end user from a source. `user` is the member `user` or, as Anthropic
 * has it, `metadata.user_id`. `session` is what agents call their session: a header of
 * Claude Code or Codex, else `prompt_cache_key`, else the session within the user.
 */
export function endUserNames(
  { headers, body }: EndUserRequest,
): EndUserNames {
  const members = isJsonObject(body) ? body : {};
  const { user, safety_identifier, prompt_cache_key, metadata } = members;
  const userId = isJsonObject(metadata) ? metadata.user_id : undefined;
  const users = [user, safety_identifier, userId];
  return (source) => {
    const header = endUserHeader(source);
    if (header !== null) return first([headers[header]]);
    if (source === "user") return first(users);
    const inHeaders = SESSION_HEADERS.map((name) => headers[name]);
    const [, session] = SESSION.exec(first([userId])) ?? [];
    return first([...inHeaders, prompt_cache_key, session]);
  };
}

/** The first text that says something. */
function first(values: readonly unknown[]): string {
  const found = values.find((each) => typeof each === "string" && each !== "");
  return typeof found === "string" ? found : "";
}
