/** How the console answers: with pages, also those of refusals and faults. */
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { HonoRequest } from "hono";
import { html } from "hono/html";
import { KeyRefused } from "../../domain/keys/key_refused.ts";
import { OperatorRefused } from "../../domain/operators/operators.ts";
import { OverrideRefused } from "../../domain/models/override_store.ts";
import { ProjectRefused } from "../../domain/projects/project_refused.ts";
import { NotDurable } from "../../domain/store/durability.ts";
import { BadCursor } from "../../domain/store/redis.ts";
import { type ConsoleContext, type Handler, Refused } from "../context.ts";
import { Page } from "../view/layout.tsx";

/** Answers with the response of a handler, or with its page. */
export const answering = (handler: Handler) => async (c: ConsoleContext) => {
  const answer = await handler(c);
  if (answer instanceof Response) return answer;
  return await c.html(html`<!DOCTYPE html>${answer}`);
};

/** Returns the refusal for an error. That for a fault has no details. */
export function asRefused(error: unknown, { method }: HonoRequest): Refused {
  if (error instanceof Refused) return error;
  if (
    error instanceof KeyRefused || error instanceof OperatorRefused ||
    error instanceof ProjectRefused
  ) {
    const isMissing = "reason" in error && error.reason === "not_found";
    return new Refused(isMissing ? 404 : 409, error.message);
  }
  if (error instanceof OverrideRefused) return new Refused(409, error.message);
  if (error instanceof BadCursor) return new Refused(400, NO_PAGE);
  const headers = { "retry-after": "1" };
  if (error instanceof NotDurable) return new Refused(503, UNSURE, { headers });
  if (error instanceof RedisUnavailableError) {
    // Does not suggest repeating a change that may have been made.
    const message = method === "POST" && error.mayHaveRun
      ? "The database did not respond in time. Your change may or may not have been made. Check before you try again"
      : "The database is not responding. Try again in a moment";
    return new Refused(503, message, { headers });
  }
  return new Refused(500, OUR_FAULT);
}

const NO_PAGE =
  "This page of the list does not exist. Start at the newest entries";
const UNSURE =
  "The change was made but is not confirmed to be on disk. Check whether it is there before you try again";
const OUR_FAULT =
  "Something went wrong on our side. Try again. If it happens again, give your operator the request id below";

const SECTION =
  /^(\/(?:account|audit|keys|models|people(?:\/projects)?|projects|requests|sign-in|try))(\/\w{3}_\w+(?:\/keys\/key_\w+)?)?/;

/**
 * Shows why a request was refused, with a link to the page of its key or owner or to
 * its section.
 */
export function refuse(
  c: ConsoleContext,
  { status, message, options: { headers = {}, back } }: Refused,
): Promise<Response> {
  const title = status === 404 ? "Not found" : "That did not work";
  const [, section = "/keys", id = ""] = SECTION.exec(c.req.path) ?? [];
  const next = back ?? (status === 404 ? section : section + id);
  return answering(() => (
    <Page c={c} title={title} status={status} headers={headers} isCard>
      <p>{message}.</p>
      <p class="help">{status} · request {c.get("requestId")}</p>
      <div class="row">
        <a class="button primary" href={next}>Continue</a>
      </div>
    </Page>
  ))(c);
}
