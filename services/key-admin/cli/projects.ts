/** `projects …`: what operators do with projects in the console, as commands. */
import { isoTime } from "../domain/keys/key_json.ts";
import { LIMIT_NAMES, namedLimits } from "../domain/keys/settings.ts";
import { runningKeys } from "../domain/operators/running_keys.ts";
import type { Project } from "../domain/projects/project_record.ts";
import type { ProjectActor } from "../domain/projects/project_store.ts";
import {
  type Area,
  COMMAND_LINE,
  CommandRefused,
  findOwner,
  findProject,
  type Invocation,
  limitsFrom,
  type Output,
  queryOf,
  UsageError,
} from "./command_line.ts";

const OPERATOR: ProjectActor = {
  ...COMMAND_LINE,
  ownerId: null,
  as: "operator",
};

/** A project as `--json` prints it. */
const toJson = ({ id, name, createdAtMs, isDisabled }: Project) => ({
  id,
  name,
  state: isDisabled ? "disabled" : "enabled",
  created_at: isoTime(createdAtMs),
});

/** Runs on the project that the command line names. */
const onProject =
  (run: (invocation: Invocation, project: Project) => Promise<Output>) =>
  async (invocation: Invocation): Promise<Output> =>
    await run(invocation, await findProject(invocation, invocation.word));

async function create(invocation: Invocation): Promise<Output> {
  const { projects, options: { name, admin } } = invocation;
  if (name === undefined) {
    throw new UsageError("--name: Say what the project is called");
  }
  const adminId = admin === undefined
    ? null
    : await findOwner(invocation, admin);
  const project = await projects.create(OPERATOR, { name, adminId });
  return { json: toJson(project) };
}

async function list(invocation: Invocation): Promise<Output> {
  const { rows, next } = await invocation.people.projects(queryOf(invocation));
  const projects = rows.map(({ project, members, keys, totals }) => ({
    ...toJson(project),
    members,
    keys,
    requests_today: totals.requests,
  }));
  return {
    json: { projects, next },
    table: { rows: projects, columns: Object.keys(projects[0] ?? {}) },
    ...next !== null && { note: `More: --after ${next}` },
  };
}

const show = onProject(async ({ owners }, project) => {
  const limits = namedLimits(await owners.limits(project.id), "_");
  return { json: { ...toJson(project), limits } };
});

const rename = onProject(async (invocation, { id }) => {
  const { projects, options: { name } } = invocation;
  if (name === undefined) {
    throw new UsageError("--name: Say what the project is called");
  }
  await projects.rename(OPERATOR, id, name);
  return await show({ ...invocation, word: id });
});

const limits = onProject(async (invocation, { id }) => {
  const { projects, owners, options } = invocation;
  if (LIMIT_NAMES.some((name) => options[name] !== undefined)) {
    const after = limitsFrom(options, await owners.limits(id));
    await projects.setLimits(OPERATOR, id, after);
  }
  return await show({ ...invocation, word: id });
});

const members = onProject(async ({ projects, owners }, { id }) => {
  const all = await projects.members(id);
  const rows = await Promise.all(all.map(async ({ ownerId, role }) => ({
    id: ownerId,
    email: (await owners.read(ownerId))?.email ?? "",
    role,
  })));
  return {
    json: { members: rows },
    table: { rows, columns: ["id", "email", "role"] },
    note: rows.length === 0 ? "No members. Add one: projects add" : "",
  };
});

/** Changes a membership, and prints the members. */
const onMember = (
  run: (
    invocation: Invocation,
    at: { id: string; memberId: string; email: string },
  ) => Promise<void>,
) =>
  onProject(async (invocation, { id }) => {
    const { member: email } = invocation.options;
    if (email === undefined) throw new UsageError("--member: Say who");
    const memberId = await findOwner(invocation, email);
    await run(invocation, { id, memberId, email });
    return await members({ ...invocation, word: id });
  });

const add = onMember(async ({ projects, options }, { id, email }) => {
  const { role = "member" } = options;
  await projects.add(OPERATOR, id, { email, role });
});

const setRole = onMember(async ({ projects, options }, { id, memberId }) => {
  const { role } = options;
  if (role === undefined) throw new UsageError("--role: admin or member");
  await projects.setRole(OPERATOR, id, { memberId, role });
});

const remove = onMember(({ projects }, { id, memberId }) =>
  projects.remove(OPERATOR, id, memberId)
);

const disable = onProject(async (invocation, { id, name }) => {
  const { projects, redis, sendStop, options } = invocation;
  await projects.setState(OPERATOR, id, "disabled");
  if (options.stopRunning) {
    await sendStop(await runningKeys(redis, id)).catch((cause) => {
      throw new CommandRefused(
        `${name} is disabled, but NATS or Redis does not answer: running requests end within 11 seconds instead of one`,
        { cause },
      );
    });
  }
  return await show({ ...invocation, word: id });
});

const enable = onProject(async (invocation, { id }) => {
  await invocation.projects.setState(OPERATOR, id, "enabled");
  return await show({ ...invocation, word: id });
});

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
      help: "list projects, newest first",
      run: list,
      options: ["search", "rows", "after"],
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
