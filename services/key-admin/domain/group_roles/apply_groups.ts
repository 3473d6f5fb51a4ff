/** Gives and takes roles when somebody signs in, by their groups at the provider. */
import type { Log } from "@gateway/shared/process/log";
import { OperatorRefused, type Operators } from "../operators/operators.ts";
import type { Account } from "../owners/owner_store.ts";
import { type Role, ROLES } from "../projects/project_record.ts";
import { ProjectRefused } from "../projects/project_refused.ts";
import type { ProjectActor, ProjectStore } from "../projects/project_store.ts";
import type { Grant, GroupRules } from "../sign_in/groups.ts";

/** Dependencies of {@link applyGroups}. */
export interface GroupDeps {
  operators: Pick<Operators, "change">;
  projects: Pick<
    ProjectStore,
    "membership" | "addOwner" | "setRole" | "remove"
  >;
  log: Log;
}

/** A sign-in with groups, and the rules for them. */
export interface GroupSignIn {
  account: Account;
  ip: string;
  /** Null if they are unknown: then nothing changes. */
  groups: readonly string[] | null;
  rules: GroupRules;
}

/**
 * Gives somebody who signs in exactly the roles that the rules grant to their groups:
 * in the projects that the rules name, and as an operator if the rules name that. Takes
 * all others there; other projects are left alone. A change that is refused is logged
 * and left out: the last operator stays one.
 */
export async function applyGroups(
  deps: GroupDeps,
  { account, ip, groups, rules }: GroupSignIn,
): Promise<void> {
  const { ownerId } = account;
  if (groups === null) return deps.log.warn("oidc_groups_unknown", { ownerId });
  const actor: ProjectActor = {
    ...BY_GROUPS,
    ip,
    ownerId: null,
    as: "operator",
  };
  const granted = groups.flatMap((group) => rules.get(group) ?? []);
  for (const projectId of projectsIn(rules)) {
    const role = roleIn(granted, projectId);
    await tryOrLog(deps, { ownerId, projectId }, async () => {
      const before = await deps.projects.membership(projectId, ownerId);
      if (before?.role === role) return;
      const member = { memberId: ownerId, role: role ?? "member" };
      if (role === undefined) {
        await deps.projects.remove(actor, projectId, ownerId);
      } else if (before === null) {
        await deps.projects.addOwner(actor, projectId, member);
      } else await deps.projects.setRole(actor, projectId, member);
    });
  }
  const namesOperators = [...rules.values()].flat().includes("operator");
  const isOperator = granted.includes("operator");
  if (!namesOperators || isOperator === account.isOperator) return;
  const what = isOperator ? "make_operator" : "remove_role_of_operator";
  await tryOrLog(deps, { ownerId, projectId: "" }, async () => {
    const by = { ...BY_GROUPS, ip, ownerId: null };
    await deps.operators.change(by, ownerId, what);
  });
}

/** The actor of these changes, as the audit log names it. */
const BY_GROUPS = { by: "groups at the provider" } as const;

const projectsIn = (rules: GroupRules): Set<string> =>
  new Set(
    [...rules.values()].flat()
      .flatMap((grant) => grant === "operator" ? [] : grant.projectId),
  );

/** The highest role that is granted in a project. */
const roleIn = (granted: readonly Grant[], id: string): Role | undefined =>
  ROLES.find((role) =>
    granted.some((grant) =>
      grant !== "operator" && grant.projectId === id && grant.role === role
    )
  );

/** Carries on when a change is refused: the person may sign in all the same. */
async function tryOrLog(
  { log }: GroupDeps,
  about: { ownerId: string; projectId: string },
  change: () => Promise<void>,
): Promise<void> {
  try {
    await change();
  } catch (error) {
    const isRefused = error instanceof ProjectRefused ||
      error instanceof OperatorRefused;
    if (!isRefused) throw error;
    log.warn("oidc_group_refused", { ...about, message: error.message });
  }
}
