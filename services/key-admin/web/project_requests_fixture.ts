/** A valid request for each route of a project, of one of its admins. */
import assert from "node:assert/strict";
import { storedKey, type TestConsole } from "../console_fixture.ts";
import { tryForm } from "../forms_fixture.ts";
import type { RouteOwner } from "../routes_fixture.ts";
import { projectOfTwo } from "./operator_requests_fixture.ts";
import { PROJECT_ROOT } from "./request/key_scope.ts";
import { VALID_REQUESTS, type ValidRequest } from "./valid_requests_fixture.ts";

/** Requests that only projects have; `member` is somebody who is no admin. */
const OWN: Record<
  string,
  (member: string) => ValidRequest & { query?: string }
> = {
  "GET ": () => ({ status: 302 }),
  "GET /members": () => ({}),
  "POST /members": () => ({
    form: { email: "added@example.org", role: "member" },
    events: ["project.member_added"],
  }),
  "POST /members/role": (member) => ({
    form: { member, role: "admin" },
    events: ["project.role_changed"],
  }),
  "GET /members/remove": (member) => ({ query: `?member=${member}` }),
  "POST /members/remove": (member) => ({
    form: { member },
    events: ["project.member_removed"],
  }),
  "POST /name": () => ({
    form: { name: "Renamed" },
    events: ["project.renamed"],
  }),
};

/**
 * The request of an admin for a route of a project: that of the same page of an owner,
 * or one of its own.
 */
export async function projectRequest(
  site: TestConsole,
  route: string,
  owner: RouteOwner,
): Promise<ValidRequest> {
  const { id: accountId, memberId } = await projectOfTwo(site, owner.ownerId);
  await site.deps.owners.ensure("added@example.org");
  const root = `/projects/${accountId}`;
  const own = route.replace(PROJECT_ROOT, "");
  const [method = "", pattern = ""] = own.split(" ");
  const special = OWN[own];
  if (special !== undefined) {
    const { query = "", ...request } = special(memberId);
    return { path: root + pattern + query, accountId, ...request };
  }
  if (/^GET \/try\/(videos|answers)\//.test(own)) {
    const makesKey = tryForm("Makes the key of the session");
    await owner.client.post(`${root}/try`, makesKey);
  }
  const { id: keyId } = await storedKey(site, accountId, {
    description: "Secret project key",
  });
  const make = VALID_REQUESTS[own] ??
    (method === "POST" ? assert.fail(`no request: ${route}`) : {});
  const subject = { ...owner, ownerId: accountId, keyId };
  const request = typeof make === "function" ? await make(site, subject) : make;
  const path = request.path ?? pattern.replace(":id", keyId);
  return { ...request, accountId, path: root + path };
}
