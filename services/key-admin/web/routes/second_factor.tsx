import type { Hono } from "hono";
import {
  mintTotpSecret,
  totpStep,
  totpUri,
} from "../../domain/sign_in/totp.ts";
import type { ConsoleContext, ConsoleDeps, ConsoleEnv } from "../context.ts";
import { readForm, secretText, text } from "../forms.ts";
import { frameOf } from "../frame_of.ts";
import {
  RecoveryCodesPage,
  SecondFactorPage,
} from "../pages/second_factor_pages.tsx";
import { Refused } from "../refused.ts";
import { route } from "../route.ts";
import { showAccount } from "./account.tsx";
import { checkPassword, note, password } from "./own_account.ts";

/** What the authenticator app shows beside the address. */
const ISSUER = "Gateway";

/** Switching two-step sign-in on and off. */
export function secondFactorRoutes(
  app: Hono<ConsoleEnv>,
  deps: ConsoleDeps,
): void {
  route(app, deps, "/account/second-factor", {
    GET: (c) => setUpFactor(c, deps),
    POST: (c) => switchFactorOn(c, deps),
  });
  route(app, deps, "/account/second-factor/off", {
    POST: (c) => switchFactorOff(c, deps),
  });
}

async function setUpFactor(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const { account } = c.get("signedIn");
  if (account.passwordHash === null || account.totpSecret !== null) {
    return c.redirect("/account", 302);
  }
  const secret = mintTotpSecret(deps.randomBytes);
  const { ownerId } = account;
  const ticket = await deps.totpSetups.make({ ownerId, secret });
  return await showFactor(c, deps, { secret, ticket }, []);
}

async function showFactor(
  c: ConsoleContext,
  deps: ConsoleDeps,
  { secret, ticket }: { secret: string; ticket: string },
  errors: readonly string[],
): Promise<Response> {
  const { account } = c.get("signedIn");
  return c.html(
    <SecondFactorPage
      frame={await frameOf(c, deps)}
      secret={secret}
      uri={totpUri(secret, account.email, ISSUER)}
      ticket={ticket}
      errors={errors}
    />,
    errors.length === 0 ? 200 : 400,
  );
}

async function switchFactorOn(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const { account } = c.get("signedIn");
  const form = readForm(c, { ticket: secretText, code: text(10), password });
  const setup = await deps.totpSetups.peek(form.ticket);
  if (setup === null || setup.ownerId !== account.ownerId) {
    throw new Refused(409, "This page is too old: begin again", {
      back: "/account/second-factor",
    });
  }
  const { secret } = setup;
  const again = (errors: string[]) =>
    showFactor(c, deps, { secret, ticket: form.ticket }, errors);
  const problem = await checkPassword(c, deps, form.password);
  if (problem !== null) return await again([problem]);
  const code = form.code.replace(/\s/g, "");
  const step = totpStep(secret, code, deps.now());
  if (step === null) {
    return await again([
      "The code is not right. Codes change every 30 seconds; is your device's clock right?",
    ]);
  }
  if (await deps.totpSetups.use(form.ticket) === null) return await again([]);
  const { ownerId } = account;
  const codes = await deps.accounts.enableTotp(ownerId, secret, step);
  await note(c, deps, "account.second_factor_on");
  return c.html(
    <RecoveryCodesPage frame={await frameOf(c, deps)} codes={codes} />,
  );
}

async function switchFactorOff(
  c: ConsoleContext,
  deps: ConsoleDeps,
): Promise<Response> {
  const form = readForm(c, { password });
  const problem = await checkPassword(c, deps, form.password);
  if (problem !== null) {
    return await showAccount(c, deps, { secondFactor: problem });
  }
  await deps.accounts.disableTotp(c.get("signedIn").account.ownerId);
  await note(c, deps, "account.second_factor_off");
  return c.redirect("/account?done=factor_off", 303);
}
