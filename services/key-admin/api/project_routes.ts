/** Projects, and who belongs to them. */
import { isAccountId, isProjectId } from "@gateway/shared/keys/key";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import { type Limits, UNLIMITED } from "@gateway/shared/keys/record";
import { z } from "zod";
import { isoTime } from "../domain/keys/key_json.ts";
import { namedLimits, oneOf } from "../domain/keys/settings.ts";
import { PROJECT_SORTS } from "../domain/operators/people_rows.ts";
import {
  type Project,
  projectName,
  ROLES,
} from "../domain/projects/project_record.ts";
import { MEMBERS, PROJECT, PROJECTS } from "./answers.ts";
import { NO_BODY, NOTHING, PAGE, someLimits, sortBy } from "./fields.ts";
import {
  type AdminAnswer,
  type AdminCall,
  type AdminDeps,
  AdminRefused,
  adminRoute,
  onceOf,
  operatorOf,
  versionOf,
} from "./route.ts";
import {
  checkStoppable,
  pageJson,
  stopAccount,
  usedToday,
} from "./shared_steps.ts";

async function toJson({ owners }: AdminDeps, project: Project) {
  const { limits, version } = await owners.standing(project.id);
  return {
    id: project.id,
    name: project.name,
    state: project.isDisabled ? "disabled" : "enabled",
    created_at: isoTime(project.createdAtMs),
    limits: namedLimits(limits, "_"),
    version,
  };
}

async function read(deps: AdminDeps, id: string): Promise<Project> {
  const project = await deps.projects.read(id);
  if (project !== null) return project;
  throw new AdminRefused("not_found", "There is no project of this id");
}

async function answerOf(deps: AdminDeps, id: string): Promise<AdminAnswer> {
  const json = await toJson(deps, await read(deps, id));
  return { json, etag: String(json.version) };
}

async function list(
  { deps, query: { name, ...page } }: AdminCall<
    z.output<typeof LIST>,
    unknown
  >,
): Promise<AdminAnswer> {
  const { people, projects, now } = deps;
  const day = usageDay(now());
  const named = async (text: string) => {
    const found = await projects.named(text);
    const rows = await Promise.all(
      found.slice(0, page.rows).map(({ id }) => people.findProject(id, day)),
    );
    return { rows: rows.filter((row) => row !== null), next: null };
  };
  const found = name === undefined
    ? await people.projects({ ...page, day })
    : await named(name);
  const rows = await Promise.all(found.rows.map(async (row) => ({
    ...await toJson(deps, row.project),
    members: row.members,
    keys: row.keys,
    ...usedToday(row.totals),
  })));
  return { json: pageJson("projects", { ...found, rows }, (row) => row) };
}

const LIST = z.strictObject({
  ...PAGE,
  name: z.string().max(200).optional().meta({
    description: "The projects with exactly this name or id",
  }),
  sort: sortBy(PROJECT_SORTS),
});

async function create(
  call: AdminCall<unknown, z.output<typeof NEW>>,
): Promise<AdminAnswer> {
  const { deps, body: { name, admin: adminId = null, limits } } = call;
  if (adminId !== null) await checkMember(deps, adminId, "admin");
  const once = onceOf(call);
  const wanted = { name, adminId, ...once !== undefined && { once } };
  const { id } = await deps.projects.create(operatorOf(call), wanted);
  if (limits) await deps.projects.update(operatorOf(call), id, { limits });
  return { ...await answerOf(deps, id), status: 201 };
}

/** Throws unless somebody may become a member. */
async function checkMember(deps: AdminDeps, ownerId: string, param: string) {
  const account = await deps.owners.read(ownerId);
  if (account === null) {
    const message = "There is no owner of this id";
    throw new AdminRefused("not_found", message, { param });
  }
  if (account.isDisabled) {
    const message = "The account of this person is disabled";
    throw new AdminRefused("conflict", message, { param });
  }
}

const ownerId = z.string().refine(
  (text) => isAccountId(text) && !isProjectId(text),
  "The id of an owner (own_…)",
);
const NEW = z.strictObject({
  name: projectName,
  admin: ownerId.optional().meta({ description: "Its first admin" }),
  limits: someLimits.optional(),
});

async function change(
  call: AdminCall<unknown, z.output<typeof CHANGES>>,
  base?: Limits,
): Promise<AdminAnswer> {
  const { deps, id, body: { stop_running: isStopped, ...wanted } } = call;
  const { name, limits, state } = wanted;
  await read(deps, id);
  if (isStopped) await checkStoppable(deps, id, state);
  await deps.projects.update(operatorOf(call), id, {
    name,
    limits: base ? { ...base, ...limits } : limits,
    state,
    version: versionOf(call),
  });
  if (isStopped) await stopAccount(deps, id);
  return await answerOf(deps, id);
}

const WHOLE = z.strictObject({
  name: projectName,
  limits: someLimits,
  state: z.enum(["enabled", "disabled"]).optional(),
  stop_running: z.boolean().default(false).meta({
    description: "End the running requests of a project that is disabled",
  }),
});
const CHANGES = WHOLE.partial({ name: true, limits: true });

async function members(
  { deps, id }: Pick<AdminCall<unknown, unknown>, "deps" | "id">,
): Promise<AdminAnswer> {
  await read(deps, id);
  const all = await deps.projects.members(id);
  const rows = await Promise.all(all.map(async ({ ownerId, role }) => ({
    id: ownerId,
    email: (await deps.owners.read(ownerId))?.email ?? "",
    role,
  })));
  return { json: { members: rows } };
}

/** Makes somebody a member with a role, whatever they were before. */
async function setMember(
  call: AdminCall<unknown, z.output<typeof MEMBER>>,
): Promise<AdminAnswer> {
  const { deps, id, params: { member: memberId = "" }, body: { role } } = call;
  await read(deps, id);
  const all = await deps.projects.members(id);
  const before = all.find(({ ownerId }) => ownerId === memberId);
  const wanted = { memberId, role };
  if (before === undefined) {
    await checkMember(deps, memberId, "member");
    await deps.projects.addOwner(operatorOf(call), id, wanted);
  } else if (before.role !== role) {
    await deps.projects.setRole(operatorOf(call), id, wanted);
  }
  return await members(call);
}
const MEMBER = z.strictObject({ role: oneOf("Roles are", ROLES) });

async function removeMember(
  call: AdminCall<unknown, unknown>,
): Promise<AdminAnswer> {
  const { deps, id, params: { member = "" } } = call;
  await read(deps, id);
  await deps.projects.remove(operatorOf(call), id, member);
  return await members(call);
}

const ONE = { scope: "accounts", query: NOTHING } as const;
const VERSIONED = { ...ONE, headers: ["if-match"], answers: PROJECT } as const;

/** Routes of projects. */
export const PROJECT_ROUTES = [
  adminRoute({
    method: "GET",
    path: "/projects",
    scope: "accounts",
    alsoWith: ["keys", "usage"],
    summary: "List projects, newest first",
    query: LIST,
    body: NO_BODY,
    answers: PROJECTS,
    run: list,
  }),
  adminRoute({
    ...ONE,
    method: "POST",
    path: "/projects",
    headers: ["idempotency-key"],
    summary:
      "Create a project. With the header Idempotency-Key, a request that is sent twice makes one project",
    body: NEW,
    answers: PROJECT,
    run: create,
  }),
  adminRoute({
    ...ONE,
    method: "GET",
    path: "/projects/:id",
    alsoWith: ["keys", "usage"],
    summary: "Show a project",
    body: NO_BODY,
    answers: PROJECT,
    run: async ({ deps, id }) => await answerOf(deps, id),
  }),
  adminRoute({
    ...VERSIONED,
    method: "PUT",
    path: "/projects/:id",
    summary:
      "Set the name of a project and the limits over all its keys: what is not stated is unlimited. Twice is the same as once",
    body: WHOLE,
    run: (call) => change(call, UNLIMITED),
  }),
  adminRoute({
    ...VERSIONED,
    method: "PATCH",
    path: "/projects/:id",
    summary:
      "Change the name or some limits of a project, disable or enable it. Twice is the same as once",
    body: CHANGES,
    run: (call) => change(call),
  }),
  adminRoute({
    ...ONE,
    method: "GET",
    path: "/projects/:id/members",
    summary: "List the members of a project, admins first",
    body: NO_BODY,
    answers: MEMBERS,
    run: members,
  }),
  adminRoute({
    ...ONE,
    method: "PUT",
    path: "/projects/:id/members/:member",
    summary: "Make an owner a member with this role. Twice is the same as once",
    body: MEMBER,
    answers: MEMBERS,
    run: setMember,
  }),
  adminRoute({
    ...ONE,
    method: "DELETE",
    path: "/projects/:id/members/:member",
    summary: "End a membership; the keys stay with the project",
    body: NO_BODY,
    answers: MEMBERS,
    run: removeMember,
  }),
];
