import type { RedisLink } from "@gateway/shared/redis/link";
import type { Hono } from "hono";
import type { Account } from "../../domain/owners/account.ts";
import {
  NotAllowed,
  type OidcClient,
  type OidcFlow,
  type OidcIdentity,
  type OidcStart,
} from "../../domain/sign_in/oidc.ts";
import { digest } from "../../domain/store/secret.ts";
import { admit } from "../../domain/sign_in/sign_in.ts";
import { identityKey } from "../../domain/store/names.ts";
import { asTextOrNull } from "../../domain/store/reply.ts";
import {
  clientOf,
  type ConsoleContext,
  type ConsoleDeps,
  type ConsoleEnv,
} from "../context.ts";
import { clearCookie, readCookie, writeCookie } from "../cookies.ts";
import { Refused } from "../refused.ts";
import { route } from "../route.ts";
import { enter } from "./enter.ts";

const CALLBACK = "/sign-in/oidc/callback";

/** Signing in through the organisation's provider. */
export function oidcRoutes(app: Hono<ConsoleEnv>, deps: ConsoleDeps): void {
  route(app, deps, "/sign-in/oidc", { GET: (c) => beginOidc(c, deps) });
  route(app, deps, CALLBACK, { GET: (c) => finishOidc(c, deps) });
}

async function beginOidc(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const provider = providerOf(deps);
  const callback = new URL(CALLBACK, deps.publicUrl);
  const askAgain = c.req.query("again") !== undefined;
  const { url, flow } = await startOf(deps, provider, callback, askAgain);
  const ticket = await deps.oidcFlows.make(flow);
  writeCookie(c, deps.publicUrl, "oidc", ticket);
  return c.redirect(url.href, 302);
}

async function finishOidc(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const provider = providerOf(deps);
  const flow = await deps.oidcFlows.use(readCookie(c, deps.publicUrl, "oidc"));
  clearCookie(c, deps.publicUrl, "oidc");
  if (flow === null) {
    throw new Refused(400, "This sign-in took too long. Begin again", {
      back: "/sign-in",
    });
  }
  const returned = new URL(
    CALLBACK + new URL(c.req.url).search,
    deps.publicUrl,
  );
  const identity = await identityOf(deps, provider, returned, flow);
  const account = await accountOf(deps, identity);
  const admitted = await admit(deps, account, clientOf(c), 0);
  return await enter(c, deps, admitted, "/keys");
}

function providerOf({ oidc }: ConsoleDeps): OidcClient {
  if (oidc === null) throw new Refused(404, "There is no such page");
  return oidc;
}

/** The provider's page; a provider that is away is not our fault, and said to be away. */
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
      `${provider.name} does not answer as it should, so nobody can sign in with it now. Try again in a moment`,
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
    throw new Refused(400, `Signing in with ${provider.name} did not work`, {
      cause,
      back: "/sign-in",
    });
  }
}

/** The account of an identity: issuer and subject name it; the address only at the first time (ASVS 6.8.1). */
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
