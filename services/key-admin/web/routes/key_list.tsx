import { isKeyId } from "@gateway/shared/keys/key";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import {
  BadCursor,
  type KeyFilter,
  PAGE_ROWS,
  type PageStart,
} from "../../domain/keys/key_page.ts";
import type { ConsoleContext, ConsoleDeps } from "../context.ts";
import { frameOf } from "../frame_of.ts";
import { KeysPage } from "../pages/keys_page.tsx";

/** A page of the owner's keys; the id of a key leads to it. */
export async function listKeys(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const { ownerId } = c.get("signedIn").session;
  const search = cleanSearch(c.req.query("search") ?? "");
  if (isKeyId(search) && await deps.keys.get(ownerId, search) !== null) {
    return c.redirect(`/keys/${search}`, 302);
  }
  const filter = filterOf(c.req.query("filter"));
  const query = {
    filter,
    search,
    start: startOf(c),
    rows: PAGE_ROWS,
    day: usageDay(deps.now()),
  };
  try {
    const page = await deps.keys.list(ownerId, query);
    const frame = await frameOf(c, deps);
    const { apiUrl } = deps;
    const nowMs = deps.now();
    return c.html(
      <KeysPage {...{ frame, page, filter, search, nowMs, apiUrl }} />,
    );
  } catch (error) {
    if (error instanceof BadCursor) return c.redirect("/keys", 302);
    throw error;
  }
}

/** Of a pasted key or hint only the end is searched for, and nothing of it is shown again. */
function cleanSearch(search: string): string {
  return search.trim().slice(0, 200).replace(
    /\bsk-\S*?([0-9A-Za-z]{4})(?=\s|$)/g,
    "$1",
  );
}

function filterOf(value: string | undefined): KeyFilter {
  return value === "enabled" || value === "disabled" || value === "with_expiry"
    ? value
    : "all";
}

function startOf(c: ConsoleContext): PageStart {
  const after = c.req.query("after");
  const before = c.req.query("before");
  if (after !== undefined) return { at: "after", cursor: after };
  if (before !== undefined) return { at: "before", cursor: before };
  return c.req.query("last") === undefined ? { at: "first" } : { at: "last" };
}
