/** Valid requests of operators about a project. */
import type { Form } from "../client_fixture.ts";
import type { TestConsole } from "../console_fixture.ts";
import type { AuditAction } from "../domain/audit/audit_log.ts";
import { limitsOf } from "../domain/keys/settings.ts";
import type { ProjectActor } from "../domain/projects/project_store.ts";

const SETTER: ProjectActor = {
  by: "test",
  ip: "",
  ownerId: null,
  as: "operator",
};
const MEMBER = "member@example.org";

/** A project of two members, and the id of the one who is no admin. */
export async function projectOfTwo(site: TestConsole, adminId: string | null) {
  const { projects, owners } = site.deps;
  const name = "Team";
  const { id } = await projects.create(SETTER, { name, adminId });
  const memberId = await owners.ensure(MEMBER);
  await projects.addOwner(SETTER, id, { memberId, role: "member" });
  // Each project counts towards the bound of the member.
  await site.deps.redis.command(["ZREM", `joined:{${memberId}}`, id]);
  return { id, memberId };
}

/** A request about a new project of nobody but the member. */
const about = (
  below: string,
  form?: (memberId: string) => Form,
  events: readonly AuditAction[] = [],
) =>
async (site: TestConsole) => {
  const { id, memberId } = await projectOfTwo(site, null);
  const query = below.endsWith("/remove") && form === undefined
    ? `?member=${memberId}`
    : "";
  return {
    path: `/people/projects/${id}${below}${query}`,
    ...form && { form: form(memberId), events },
  };
};

/** A page about a new admin key, and what deleting it leads to. */
const aboutAdminKey = (form?: Form) => async (site: TestConsole) => {
  const scopes = ["usage" as const];
  const wanted = { description: "Finance", scopes, expiresAtMs: null };
  const { key } = await site.deps.adminKeys.create(wanted, SETTER);
  const events: readonly AuditAction[] = ["admin_key.deleted"];
  return {
    path: `/people/admin-keys/${key.id}/delete`,
    ...form && { form, events },
  };
};

/** By route, as the other valid requests. */
export const OPERATOR_ADMIN_KEY_REQUESTS = {
  "GET /people/admin-keys": { path: "/people/admin-keys" },
  "POST /people/admin-keys": {
    form: {
      description: "Nightly build",
      scopes: ["keys", "usage"],
      expires: "2099-01-31",
      nonce: "a".repeat(43),
    },
    events: ["admin_key.created" as const],
    status: 201,
    path: "/people/admin-keys",
  },
  "GET /people/admin-keys/:id/delete": aboutAdminKey(),
  "POST /people/admin-keys/:id/delete": aboutAdminKey({}),
};

const ROOT = "/people/projects/:id";

/** Valid requests by route. */
export const OPERATOR_PROJECT_REQUESTS = {
  [`GET ${ROOT}`]: about(""),
  [`GET ${ROOT}/export.csv`]: about("/export.csv"),
  [`GET ${ROOT}/members/remove`]: about("/members/remove"),
  [`POST ${ROOT}/members`]: async (site: TestConsole) => {
    await site.deps.owners.ensure("added@example.org");
    const form = () => ({ email: "added@example.org", role: "admin" });
    return await about("/members", form, ["project.member_added"])(site);
  },
  [`POST ${ROOT}/members/role`]: about(
    "/members/role",
    (member) => ({ member, role: "admin" }),
    ["project.role_changed"],
  ),
  [`POST ${ROOT}/members/remove`]: about(
    "/members/remove",
    (member) => ({ member }),
    ["project.member_removed"],
  ),
  [`POST ${ROOT}/name`]: about(
    "/name",
    () => ({ name: "Renamed" }),
    ["project.renamed"],
  ),
  [`POST ${ROOT}/limits`]: about(
    "/limits",
    () => ({ ...limitsOf(() => ""), concurrency: "4" }),
    ["project.limits_changed"],
  ),
  [`POST ${ROOT}/state`]: about(
    "/state",
    () => ({ state: "disabled", stop_running: "on" }),
    ["project.disabled"],
  ),
};
