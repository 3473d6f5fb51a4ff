/** Why a change of a project is refused. */
import { keysOf } from "@gateway/shared/process/env";
import { z } from "zod";
import { PROJECT_LIMITS } from "./project_record.ts";

/** Why nothing was changed, as users read it. */
const REFUSALS = {
  not_found: "This project does not exist, or you are not one of its members",
  not_admin: "Only an admin of the project can do this",
  not_member: "This person is not a member of the project (any more)",
  is_member: "This person is a member of the project already",
  last_admin:
    "A project needs an admin. Make somebody else an admin first, or ask an operator",
  too_many: `A project has at most ${
    PROJECT_LIMITS.membersMax.toLocaleString("en")
  } members`,
  too_many_projects:
    `Somebody is a member of at most ${PROJECT_LIMITS.projectsPerOwnerMax} projects`,
  already_made:
    "This project was already created: the form was sent twice. It is in your list of projects",
  no_such_owner:
    "There is no owner with this address. An operator invites people to the console",
  owner_disabled: "The account of this person is disabled",
};
/** Why a change of a project is refused, by name. */
export type ProjectRefusal = keyof typeof REFUSALS;
/** Reads the reason that a script returns. */
export const projectRefusal = z.enum(keysOf(REFUSALS));

/** A change was refused, and nothing was changed. The message is for users. */
export class ProjectRefused extends Error {
  override name = "ProjectRefused";

  constructor(readonly reason: ProjectRefusal) {
    super(REFUSALS[reason]);
  }
}
