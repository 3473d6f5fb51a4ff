/**
 * Rules that grant roles to the groups of a provider: in projects, and that of an
 * operator.
 */
import { isProjectId } from "@gateway/shared/keys/key";
import { z } from "zod";
import { type Role, ROLES } from "../projects/project_record.ts";

/** A role that a rule grants: that of an operator, or one in a project. */
export type Grant = "operator" | { projectId: string; role: Role };

/** The roles that each group is granted, by its name at the provider. */
export type GroupRules = ReadonlyMap<string, readonly Grant[]>;

const grant = z.string().transform((text, context): Grant => {
  if (text === "operator") return text;
  const [, projectId = "", word] = /^(\w+):(\w+)$/.exec(text) ?? [];
  const role = ROLES.find((role) => role === word);
  if (isProjectId(projectId) && role !== undefined) return { projectId, role };
  context.addIssue("not a grant");
  return z.NEVER;
});

const rules = z.record(z.string(), z.union([grant, z.array(grant)]))
  .transform((map): GroupRules =>
    new Map(
      Object.entries(map).map(([group, grants]) => [group, [grants].flat()]),
    )
  );

/**
 * Reads the rules from JSON: `{"search": "prj_…:member", "ops": ["operator"]}`; null if
 * they are malformed.
 */
export function parseGroupRules(text: string): GroupRules | null {
  try {
    return rules.safeParse(JSON.parse(text)).data ?? null;
  } catch {
    // It is no JSON: the caller reports the mistake.
    return null;
  }
}

const groupNames = z.union([z.string(), z.array(z.string())])
  .transform((names) => [names].flat());

/**
 * The groups in a claim of an identity token. A claim that is not there means none;
 * null: they are unknown, because the claim is malformed or the provider says that they
 * did not fit into the token (`_claim_names`, as Entra ID does beyond 200 groups).
 */
export function groupsIn(
  claims: Readonly<Record<string, unknown>>,
  name: string,
): readonly string[] | null {
  const elsewhere = z.looseObject({}).safeParse(claims._claim_names).data;
  if (elsewhere !== undefined && Object.hasOwn(elsewhere, name)) return null;
  const value = claims[name];
  return value === undefined ? [] : groupNames.safeParse(value).data ?? null;
}
