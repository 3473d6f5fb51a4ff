import type { RedisLink } from "@gateway/shared/redis/link";
import type { Account } from "../domain/owners/account.ts";
import {
  NotAllowed,
  type OidcClient,
  type OidcFlow,
  type OidcIdentity,
  type OidcStart,
} from "../domain/sign_in/oidc.ts";
import { digest } from "../domain/store/secret.ts";
import { admit } from "../domain/sign_in/sign_in.ts";
import { identityKey } from "../domain/store/names.ts";
import { asTextOrNull } from "../domain/store/reply.ts";
import {
  clientOf,
  type ConsoleDeps,
  type Handler,
  Refused,
  type Routes,
} from "./context.ts";
import { clearCookie, enter, readCookie, writeCookie } from "./session.ts";

/** Signing in through the organisation's provider. */

const CALLBACK = "/sign-in/oidc/callback";

const begin: Handler = async (c, deps) => {
  const provider = providerOf(deps);
  const callback = new URL(CALLBACK, deps.publicUrl);
  const askAgain = c.req.query("again") !== undefined;
  const { url, flow } = await startOf(deps, provider, callback, askAgain);
  writeCookie(c, deps, "oidc", await deps.oidcFlows.make(flow));
  return c.redirect(url.href, 302);
};

const finish: Handler = async (c, deps) => {
  const provider = providerOf(deps);
  const flow = await deps.oidcFlows.use(readCookie(c, deps, "oidc"));
  clearCookie(c, deps, "oidc");
  if (flow === null) {
    throw new Refused(400, "This sign-in took too long. Start again", {
      back: "/sign-in",
    });
  }
  const { search } = new URL(c.req.url);
  const returned = new URL(CALLBACK + search, deps.publicUrl);
  const identity = await identityOf(deps, provider, returned, flow);
  const account = await accountOf(deps, identity);
  const admitted = await admit(deps, account, clientOf(c), 0);
  return await enter(c, deps, admitted, "/keys");
};

export const oidcRoutes: Routes = {
  "/sign-in/oidc": { GET: begin },
  [CALLBACK]: { GET: finish },
};

function providerOf({ oidc }: ConsoleDeps): OidcClient {
  if (oidc === null) throw new Refused(404, "This page does not exist");
  return oidc;
}

/** Where to send the browser. */
async function startOf(
  { log }: ConsoleDeps,
  provider: OidcClient,
  callback: URL,
  askAgain: boolean,
): Promise<OidcStart> {
  try {
    return await provider.begin(callback, askAgain);
  } catch (cause) {
    log.warn("oidc_unavailable", { error: cause });
    throw new Refused(
      503,
      `${provider.name} does not answer as expected, so nobody can sign in with it now. Try again in a moment`,
      { cause, back: "/sign-in" },
    );
  }
}

async function identityOf(
  { log }: ConsoleDeps,
  provider: OidcClient,
  returned: URL,
  flow: OidcFlow,
): Promise<OidcIdentity> {
  try {
    return await provider.finish(returned, flow);
  } catch (cause) {
    log.warn("oidc_refused", { error: cause });
    if (cause instanceof NotAllowed) {
      throw new Refused(403, cause.message, { cause, back: "/sign-in" });
    }
    throw new Refused(400, `Signing in with ${provider.name} failed`, {
      cause,
      back: "/sign-in",
    });
  }
}

/** The account of an identity: found by issuer and subject, by e-mail address only the first time (ASVS 6.8.1). */
async function accountOf(
  { redis, owners, accounts }: ConsoleDeps,
  { issuer, subject, email }: OidcIdentity,
): Promise<Account> {
  const pointer = identityKey(digest(JSON.stringify([issuer, subject])));
  const ownerId = asTextOrNull(await redis.command(["GET", pointer])) ??
    await linkIdentity(redis, pointer, await owners.ensure(email));
  const account = await accounts.read(ownerId);
  if (account === null) throw new Error(`No account of owner ${ownerId}`);
  return account;
}

async function linkIdentity(
  redis: RedisLink,
  pointer: string,
  ownerId: string,
): Promise<string> {
  await redis.command(["SET", pointer, ownerId, "NX"]);
  return ownerId;
}
