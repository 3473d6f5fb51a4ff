/** What many commands take: an owner or a project, limits, a page of a list. */
import { clip } from "@gateway/shared/process/error_text";
import { OWNERS, PROJECTS } from "../api/answers.ts";
import { LIMIT_NAMES, limitText, limitWords } from "../domain/keys/settings.ts";
import {
  CommandRefused,
  type Invocation,
  type LocalDeps,
  type Options,
  UsageError,
} from "./command_line.ts";

/** The page of a list that was asked for. */
export const pageOf = ({ options }: Invocation) => ({
  search: options.search,
  sort: options.sort,
  after: options.after,
  rows: options.rows?.toString(),
});

/** What the text of a page says of other rows; undefined: these are all. */
export function moreRows(
  { next, partial = false }: {
    next: string | null;
    partial?: boolean | undefined;
  },
): string | undefined {
  const notes = [
    ...partial ? ["Only the first 10,000 rows were compared"] : [],
    ...next === null ? [] : [`More: --after "${next}"`],
  ];
  return notes.length === 0 ? undefined : `\n${notes.join("\n")}`;
}

/** The limits that the options set, as the admin API takes them. */
export const limitsOf = (options: Options): Record<string, string> =>
  Object.fromEntries(LIMIT_NAMES.flatMap((name) => {
    const value = options[name];
    const word = limitWords(name, "_");
    return value === undefined ? [] : [[word, limitText(name, value)]];
  }));

/** The owner of an address. Throws {@link CommandRefused} when there is none. */
export async function findOwner({ api }: Invocation, email: string) {
  const found = await api.ask(OWNERS, "GET /owners", { query: { email } });
  const [owner] = found.owners;
  if (owner !== undefined) return owner;
  throw new CommandRefused(
    `There is no owner ${email}: "owners list" shows all, "owners invite" adds one`,
  );
}

/** The project of a name or an id. Throws {@link CommandRefused} unless it is one. */
export async function findProject({ api }: Invocation, name: string) {
  const { projects } = await api.ask(PROJECTS, "GET /projects", {
    query: { name },
  });
  const [project, ...others] = projects;
  if (project === undefined) {
    throw new CommandRefused(
      `There is no project ${clip(name)}: "projects list" shows all`,
    );
  }
  if (others.length > 0) {
    const ids = projects.map(({ id }) => id).join(", ");
    throw new CommandRefused(
      `Several projects are called ${clip(name)}. Use the id of one: ${ids}`,
    );
  }
  return project;
}

/** The account that `--owner` or `--project` names; undefined: none does. */
export async function namedAccount(
  invocation: Invocation,
): Promise<string | undefined> {
  const { owner, project } = invocation.options;
  if (owner !== undefined && project !== undefined) {
    throw new UsageError("--owner and --project: A key has one account");
  }
  if (project !== undefined) return (await findProject(invocation, project)).id;
  return owner && (await findOwner(invocation, owner)).id;
}

/** Redis. Throws {@link CommandRefused} where commands go to an admin API. */
export function localOf({ local }: Invocation, command: string): LocalDeps {
  if (local !== null) return local;
  throw new CommandRefused(
    `"${command}" needs Redis, which the admin API does not give: run it where key-admin runs, without GATEWAY_ADMIN_URL`,
  );
}
