/** A valid request for each route of the console, and its effects. */
import type { Form } from "../client_fixture.ts";
import {
  codeOf,
  invitation,
  storedKey,
  type TestConsole,
} from "../console_fixture.ts";
import type { AuditAction } from "../domain/audit/audit_log.ts";
import { limitsOf } from "../domain/keys/settings.ts";
import { keyForm, PASSWORD, tryForm } from "../forms_fixture.ts";
import type { RouteOwner } from "../routes_fixture.ts";
import {
  OPERATOR_ADMIN_KEY_REQUESTS,
  OPERATOR_PROJECT_REQUESTS,
} from "./operator_requests_fixture.ts";
import { run } from "./running_fixture.ts";

/** A valid request of an owner, and its effects. */
export interface ValidRequest {
  form?: Form;
  /** Entries in the audit log. */
  events?: readonly AuditAction[];
  /** The status of the answer; by default 200 for a GET and 303 for a form. */
  status?: number;
  /**
   * By default the path of the route, whose id is that of the owner's key, or of
   * somebody else on pages of operators.
   */
  path?: string;
  /** Whose audit log has the entries; by default the owner's. */
  accountId?: string;
}

/** Prepares the console for a request that needs it. */
export type MakeRequest = (
  site: TestConsole,
  owner: RouteOwner,
) => ValidRequest | Promise<ValidRequest>;

/** The address of whom {@link VALID_REQUESTS} invite. */
export const INVITED = "invited@example.org";
/** There is no such answer; `tests/e2e/kept/try_reload_test.ts` has one. */
const ANSWER = `/try/answers/req_${"0".repeat(32)}`;
/** There is no such video; `web/pages/try/try_test.ts` has one. */
const VIDEO = `/try/videos/video_${"0".repeat(32)}`;
/** The version of a new key. */
const version = "1";
const nonce = "a".repeat(43);

/** Why operators change keys of others here. */
const reason = "It has leaked";

/** The page of a new key of somebody else, and below it. */
async function keyOfOther(
  site: TestConsole,
  below = "",
): Promise<{ path: string; ids: { ownerId: string; keyId: string } }> {
  const ownerId = await site.deps.owners.ensure(INVITED);
  const { id: keyId } = await storedKey(site, ownerId, {
    description: "Of somebody else",
  });
  return {
    path: `/people/${ownerId}/keys/${keyId}${below}`,
    ids: { ownerId, keyId },
  };
}

/** A page of an operator about a key of somebody else. */
const pageOfOther = (below: string): MakeRequest => async (site) => ({
  path: (await keyOfOther(site, below)).path,
});

/** A server of the fixture's list. */
const SERVER = { model: "small-1", backend: "openai-1" };

/**
 * By route. A GET that is missing needs nothing but the path of its route; a form must
 * be here.
 */
export const VALID_REQUESTS: Readonly<
  Record<string, ValidRequest | MakeRequest>
> = {
  "GET /": { status: 302 },
  "GET /assets/:version/:name": (site) => ({
    path: site.deps.assets.stylesheet,
  }),
  "GET /sign-in": { status: 302 },
  "POST /sign-in": (_, { email }) => ({
    form: { email, password: PASSWORD, code: "", next: "/keys" },
    events: ["session.signed_in"],
  }),
  "GET /link/:secret": async (site) => ({
    path: await invitation(site, INVITED),
  }),
  "POST /link/:secret": async (site) => ({
    form: { email: "", new_password: PASSWORD },
    events: ["account.created", "session.signed_in"],
    path: await invitation(site, INVITED),
  }),
  // There is no provider here; `sign_in/oidc_test.ts` has one.
  "GET /sign-in/oidc": { status: 404 },
  "GET /sign-in/oidc/callback": { status: 404 },
  "GET /requests/running/stop": (site, owner) => ({
    path: `/requests/running/stop?request=${run(site, owner)}`,
  }),
  "POST /requests/running/stop": (site, owner) => ({
    form: { request: run(site, owner) },
    events: ["key.request_stopped"],
  }),
  "GET /people/running/stop": (site, owner) => ({
    path: `/people/running/stop?request=${run(site, owner)}`,
  }),
  "POST /people/running/stop": async (site) => {
    const { ids } = await keyOfOther(site);
    return {
      form: { request: run(site, ids), reason },
      events: ["key.request_stopped"],
    };
  },
  "POST /keys/new": {
    form: keyForm("One more", { nonce }),
    events: ["key.created"],
    status: 201,
  },
  "POST /keys/defaults": {
    form: {
      ...limitsOf(() => ""),
      which_models: "all",
      models: [],
      expiryDays: "90",
    },
    events: ["account.key_defaults_changed"],
  },
  "POST /keys/:id/edit": {
    form: keyForm("Renamed", { version }),
    events: ["key.edited"],
  },
  "POST /keys/:id/enable": async ({ deps }, { ownerId, keyId }) => {
    const actor = { by: "test", ip: "" };
    await deps.keys.disable({ ownerId, keyId, version: null, actor });
    return { form: { version: "2" }, events: ["key.enabled"] };
  },
  "POST /keys/:id/disable": {
    form: { version, stop_running: "on" },
    events: ["key.disabled", "key.stop_requested"],
  },
  "GET /keys/disable": (_, { keyId }) => ({
    path: `/keys/disable?keys=${keyId}`,
  }),
  "POST /keys/disable": (_, { keyId }) => ({
    form: { keys: [keyId], stop_running: "on" },
    events: ["key.disabled", "key.stop_requested"],
  }),
  "GET /people/keys/disable": async (site) => {
    const { ids } = await keyOfOther(site);
    return { path: `/people/keys/disable?keys=${ids.ownerId}.${ids.keyId}` };
  },
  "POST /people/keys/disable": async (site) => {
    const { ids } = await keyOfOther(site);
    return {
      form: { keys: [`${ids.ownerId}.${ids.keyId}`], reason },
      events: ["key.disabled"],
    };
  },
  "POST /keys/:id/delete": {
    form: { version, sure: "on" },
    events: ["key.deleted"],
  },
  "POST /keys/:id/rotate": {
    form: { version, old: "now", nonce },
    events: ["key.created", "key.rotated"],
    status: 201,
  },
  "POST /try": { form: tryForm("Hi"), events: ["key.created"], status: 200 },
  "POST /try/stream": {
    form: tryForm("Hi"),
    events: ["key.created"],
    status: 200,
  },
  "GET /try/answers/:id": async (_, { client }) => {
    await client.post("/try", tryForm("Makes the key of the session"));
    return { status: 404, path: ANSWER };
  },
  "POST /try/answers/:id/stop": {
    form: {},
    events: ["key.created"],
    status: 404,
    path: `${ANSWER}/stop`,
  },
  "POST /try/videos/:id": {
    form: tryForm("Hi"),
    events: ["key.created"],
    status: 404,
    path: VIDEO,
  },
  "GET /try/videos/:id/content": async (_, { client }) => {
    await client.post("/try", tryForm("Makes the key of the session"));
    return { status: 404, path: `${VIDEO}/content` };
  },
  "POST /account/password": {
    form: { password: PASSWORD, new_password: "quite another phrase" },
    events: ["session.confirmed", "account.password_changed"],
  },
  "POST /account/second-factor": async (site, { client }) => {
    const page = await client.get("/account/second-factor");
    const secret = /secret=([A-Z2-7]{32})/.exec(page.text)?.[1] ?? "";
    return {
      form: { code: codeOf(site, secret), password: PASSWORD },
      events: ["session.confirmed", "account.second_factor_on"],
      status: 200,
    };
  },
  "POST /account/second-factor/off": {
    form: { password: PASSWORD },
    events: ["session.confirmed", "account.second_factor_off"],
  },
  "POST /account/sessions/end": async ({ deps }, { ownerId }) => {
    const [session] = await deps.sessions.list(ownerId);
    return {
      form: { session: session?.id ?? "" },
      events: ["session.revoked"],
    };
  },
  "POST /account/sessions/end-all": { events: ["session.revoked"] },
  "POST /account/notice": async ({ deps }, { ownerId }) => {
    await deps.owners.disableTotp(ownerId, "op@example.org");
    return {};
  },
  "POST /sign-out": { events: ["session.signed_out"] },
  "POST /projects/new": {
    form: { name: "Search", nonce },
    events: ["project.created"],
  },
  ...OPERATOR_ADMIN_KEY_REQUESTS,
  ...OPERATOR_PROJECT_REQUESTS,
  "POST /people": {
    form: { email: "new@example.org" },
    events: ["owner.invited"],
    status: 201,
  },
  "POST /people/:id": {
    form: { what: "disable" },
    events: ["owner.disabled"],
  },
  "GET /people/:owner/keys/:id": pageOfOther(""),
  "GET /people/:owner/keys/:id/edit": pageOfOther("/edit"),
  "GET /people/:owner/keys/:id/ask/disable": pageOfOther("/ask/disable"),
  "GET /people/:owner/keys/:id/ask/delete": pageOfOther("/ask/delete"),
  "GET /people/:owner/keys/:id/ask/enable": pageOfOther("/ask/enable"),
  "GET /people/:owner/keys/:id/export.csv": pageOfOther("/export.csv"),
  "POST /people/:owner/keys/:id/edit": async (site) => ({
    path: (await keyOfOther(site, "/edit")).path,
    form: keyForm("Renamed", { version, reason }),
    events: ["key.edited"],
  }),
  "POST /people/:owner/keys/:id/disable": async (site) => ({
    path: (await keyOfOther(site, "/disable")).path,
    form: { version, stop_running: "on", reason },
    events: ["key.disabled", "key.stop_requested"],
  }),
  "POST /people/:owner/keys/:id/delete": async (site) => ({
    path: (await keyOfOther(site, "/delete")).path,
    form: { version, sure: "on", reason },
    events: ["key.deleted"],
  }),
  "POST /people/:owner/keys/:id/enable": async (site) => {
    const { path, ids } = await keyOfOther(site, "/enable");
    const actor = { by: "test", ip: "" };
    await site.deps.keys.disable({ ...ids, version: null, actor });
    return { path, form: { version: "2", reason }, events: ["key.enabled"] };
  },
  "POST /people/:id/limits": {
    form: { ...limitsOf(() => ""), concurrency: "4" },
    events: ["owner.limits_changed"],
  },
  "GET /models/change": {
    path: "/models/change?model=small-1&backend=openai-1",
  },
  "POST /models/change": {
    form: { ...SERVER, what: "drain", weight: "", reason: "New driver" },
    events: ["model.changed"],
  },
  "POST /models/undo": async ({ deps }, { ownerId }) => {
    const actor = { by: "test", ip: "", ownerId };
    await deps.overrides.set({ ...SERVER, what: "drain" }, actor, "");
    return {
      form: { ...SERVER, what: "drain" },
      events: ["model.change_undone"],
    };
  },
};
