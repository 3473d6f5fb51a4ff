/** `projects …`: what operators do with projects in the console, as commands. */
import type { z } from "zod";
import { MEMBERS, PROJECT, PROJECTS as PAGE } from "../api/answers.ts";
import { LIMIT_NAMES } from "../domain/keys/settings.ts";
import { ProjectRefused } from "../domain/projects/project_refused.ts";
import {
  findOwner,
  findProject,
  limitsOf,
  moreRows,
  pageOf,
} from "./accounts.ts";
import {
  type Area,
  type Invocation,
  type Output,
  UsageError,
} from "./command_line.ts";

type ProjectJson = z.output<typeof PROJECT>;

/** Runs on the project that the command line names. */
const onProject =
  (run: (invocation: Invocation, id: string) => Promise<Output>) =>
  async (invocation: Invocation): Promise<Output> =>
    await run(invocation, (await findProject(invocation, invocation.word)).id);

const headOf = ({ id, name, state, created_at }: ProjectJson) => ({
  id,
  name,
  state,
  created_at,
});

/** What the options must name. */
function nameIn({ options: { name } }: Invocation): string {
  if (name !== undefined) return name;
  throw new UsageError("--name: Say what the project is called");
}

async function create(invocation: Invocation): Promise<Output> {
  const { api, options: { admin } } = invocation;
  const name = nameIn(invocation);
  const body = {
    name,
    admin: admin && (await findOwner(invocation, admin)).id,
  };
  const project = await api.ask(PROJECT, "POST /projects", { body });
  return { json: headOf(project) };
}

async function list(invocation: Invocation): Promise<Output> {
  const query = pageOf(invocation);
  const page = await invocation.api.ask(PAGE, "GET /projects", { query });
  const projects = page.projects.map((project) => ({
    ...headOf(project),
    members: project.members,
    keys: project.keys,
    requests_today: project.requests_today,
    cost_today: project.cost_today,
  }));
  const { next, partial } = page;
  const note = moreRows(page);
  return {
    json: { projects, next, ...partial && { partial } },
    table: { rows: projects, columns: Object.keys(projects[0] ?? {}) },
    ...note !== undefined && { note },
  };
}

const output = (project: ProjectJson): Output => ({
  json: { ...headOf(project), limits: project.limits },
});

const show = onProject(async ({ api }, id) =>
  output(await api.ask(PROJECT, `GET /projects/${id}`))
);

/** Changes a project, and prints it. */
const changing = (bodyOf: (invocation: Invocation) => object) =>
  onProject(async (invocation, id) => {
    const body = bodyOf(invocation);
    const line = `PATCH /projects/${id}` as const;
    return output(await invocation.api.ask(PROJECT, line, { body }));
  });

const rename = changing((invocation) => ({ name: nameIn(invocation) }));
const limits = changing(({ options }) => ({ limits: limitsOf(options) }));
const enable = changing(() => ({ state: "enabled" }));
const disable = changing(({ options: { stopRunning: stop_running } }) => ({
  state: "disabled",
  stop_running,
}));

const memberTable = ({ members: rows }: z.output<typeof MEMBERS>): Output => ({
  json: { members: rows },
  table: { rows, columns: ["id", "email", "role"] },
  note: rows.length === 0 ? "No members. Add one: projects add" : "",
});

const members = onProject(async ({ api }, id) =>
  memberTable(await api.ask(MEMBERS, `GET /projects/${id}/members`))
);

/** Changes a membership, and prints the members. */
const onMember = (
  run: (
    invocation: Invocation,
    /** Whether the person is a member already, and the request's path. */
    at: { isMember: boolean; path: `/projects/${string}` },
  ) => Promise<z.output<typeof MEMBERS>>,
) =>
  onProject(async (invocation, id) => {
    const { api, options: { member: email } } = invocation;
    if (email === undefined) throw new UsageError("--member: Say who");
    const member = await findOwner(invocation, email);
    const path = `/projects/${id}/members` as const;
    const before = await api.ask(MEMBERS, `GET ${path}`);
    const isMember = before.members.some(({ id }) => id === member.id);
    const at = { isMember, path: `${path}/${member.id}` } as const;
    return memberTable(await run(invocation, at));
  });

const add = onMember(async ({ api, options }, { isMember, path }) => {
  if (isMember) throw new ProjectRefused("is_member");
  const { role = "member" } = options;
  return await api.ask(MEMBERS, `PUT ${path}`, { body: { role } });
});

const setRole = onMember(async ({ api, options }, { isMember, path }) => {
  const { role } = options;
  if (role === undefined) throw new UsageError("--role: admin or member");
  if (!isMember) throw new ProjectRefused("not_member");
  return await api.ask(MEMBERS, `PUT ${path}`, { body: { role } });
});

const remove = onMember(async ({ api }, { path }) =>
  await api.ask(MEMBERS, `DELETE ${path}`)
);

/** The commands on projects. */
export const PROJECTS: Area = {
  title: "Manage projects, whose members share keys, limits and usage.",
  commands: [
    {
      usage: "create",
      help: "create a project",
      run: create,
      options: ["name", "admin"],
    },
    {
      usage: "list",
      help: "list projects, newest first or in another order",
      run: list,
      options: ["search", "sort", "rows", "after"],
    },
    { usage: "show <project>", help: "show one project", run: show },
    {
      usage: "rename <project>",
      help: "give it another name",
      run: rename,
      options: ["name"],
    },
    {
      usage: "limits <project>",
      help: "show or change limits of all its keys",
      run: limits,
      options: LIMIT_NAMES,
    },
    { usage: "members <project>", help: "list its members", run: members },
    {
      usage: "add <project>",
      help: "add a member",
      run: add,
      options: ["member", "role"],
    },
    {
      usage: "role <project>",
      help: "change the role of a member",
      run: setRole,
      options: ["member", "role"],
    },
    {
      usage: "remove <project>",
      help: "remove a member; the keys stay",
      run: remove,
      options: ["member"],
    },
    {
      usage: "disable <project>",
      help: "refuse requests with its keys",
      run: disable,
      options: ["stopRunning"],
    },
    {
      usage: "enable <project>",
      help: "accept their requests again",
      run: enable,
    },
  ],
  notes:
    `A project is named by its name or its id. An admin changes the members and all keys; a
member creates keys, and changes those. Keys of a project: keys create --project NAME.`,
};
