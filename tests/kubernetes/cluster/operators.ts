/** The objects of operators, which the chart may make. */
import type { ControlPlane } from "./control_plane.ts";
import { DEFINITIONS } from "./install.ts";

/** Lets the API server know them. The operators themselves do not run. */
export async function defineOperators(
  { commands }: ControlPlane,
): Promise<void> {
  await commands.kubectl("create", "--filename", DEFINITIONS);
  await commands.kubectl(
    "wait",
    "--for=condition=Established",
    "customresourcedefinition",
    "--all",
  );
}
