import { NotAllowed, type OidcClient } from "../domain/sign_in/oidc.ts";
import { admit } from "../domain/sign_in/sign_in.ts";
import {
  clientOf,
  type ConsoleDeps,
  type Handler,
  Refused,
} from "./context.ts";
import { enter, readCookie, writeCookie } from "./session.ts";

/** Signing in through the organisation's provider. */

const CALLBACK = "/sign-in/oidc/callback";

const begin: Handler = async (c) => {
  const { deps } = c.var;
  const provider = providerOf(deps);
  const callback = new URL(CALLBACK, deps.publicUrl);
  const askAgain = c.req.query("again") !== undefined;
  const { url, flow } = await provider.begin(callback, askAgain)
    .catch((cause) => {
      deps.log.warn("oidc_unavailable", { error: cause });
      throw refusal(
        503,
        `${provider.name} does not answer as expected, so you cannot sign in with it now. Try again in a moment`,
        cause,
      );
    });
  writeCookie(c, "oidc", flow);
  return c.redirect(url.href, 302);
};

const finish: Handler = async (c) => {
  const { deps } = c.var;
  const provider = providerOf(deps);
  const flow = readCookie(c, "oidc");
  writeCookie(c, "oidc", null);
  if (flow === "") {
    throw refusal(400, "This sign-in took too long. Start again");
  }
  const { search } = new URL(c.req.url);
  const returned = new URL(CALLBACK + search, deps.publicUrl);
  const identity = await provider.finish(returned, flow).catch((cause) => {
    deps.log.warn("oidc_refused", { error: cause });
    throw cause instanceof NotAllowed
      ? refusal(403, cause.message, cause)
      : refusal(400, `Signing in with ${provider.name} failed`, cause);
  });
  const ownerId = await deps.owners.ofIdentity(identity);
  const account = await deps.owners.read(ownerId);
  if (account === null) throw new Error(`No account of owner ${ownerId}`);
  const admitted = await admit(deps, account, clientOf(c), 0);
  return await enter(c, admitted, "/keys");
};

export const oidcRoutes = {
  "/sign-in/oidc": { GET: begin },
  [CALLBACK]: { GET: finish },
};

function providerOf({ oidc }: ConsoleDeps): OidcClient {
  if (oidc === null) throw new Refused(404, "This page does not exist");
  return oidc;
}

const refusal = (status: 400 | 403 | 503, message: string, cause?: unknown) =>
  new Refused(status, message, { cause, back: "/sign-in" });
