import type { ConsoleContext, ConsoleDeps } from "./context.ts";
import type { Frame } from "./pages/frame.tsx";

/** What a page says after a change. The address carries the word, never the text. */
const NOTICES: Readonly<Record<string, string>> = {
  enabled: "The key is enabled.",
  disabled: "The key is disabled. Requests with it are refused from now on.",
  disabled_stopped:
    "The key is disabled, and its running requests are being stopped.",
  deleted: "The key is deleted.",
  deleted_stopped:
    "The key is deleted, and its running requests are being stopped.",
  edited: "Your changes are saved.",
  password: "Your password is changed.",
  factor_off: "Two-step sign-in is off.",
  failed_tries:
    "Before you, somebody failed to sign in to your account several times. The audit log says when and from where.",
  session_ended: "The session is ended.",
};

const NOT_DURABLE =
  "Redis does not keep changes over a loss of power. Ask your operator to set appendonly yes and appendfsync always, or to use Redis 8 or later.";
const NOT_STOPPED =
  "The key is changed, but its running requests could not be stopped: no answer from NATS. They end by themselves.";

/** What the pages of a signed-in owner have in common. */
export async function frameOf(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Frame> {
  const { account, session } = c.get("signedIn");
  const done = c.req.query("done") ?? "";
  const isDurable = await deps.durability() !== "none";
  return {
    assets: deps.assets,
    email: account.email,
    formToken: session.formToken,
    notice: Object.hasOwn(NOTICES, done) ? NOTICES[done] ?? null : null,
    warning: done === "not_stopped"
      ? NOT_STOPPED
      : isDurable
      ? null
      : NOT_DURABLE,
  };
}
