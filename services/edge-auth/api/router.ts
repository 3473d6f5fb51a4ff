/** Finds the route of a path: of the API, or of one that only some servers have. */
import { otherPathsOf } from "@gateway/shared/forward/other_paths";
import { forwardToPath } from "../forward/other_path.ts";
import { runRequest } from "../requests/run_request.ts";
import type { AppDependencies } from "./dependencies.ts";
import { REFERENCE } from "./reference.ts";
import { type Handler, type Route, routeOf } from "./route.ts";

/** The route of all paths that do not exist. */
export const OTHER: Route = {
  name: "other",
  path: "",
  handlers: {},
  allow: "",
};

/** The route of a path, and its part that varies. */
export interface Match {
  readonly route: Route;
  readonly id: string;
}

/** Returns a function that finds the route of a path among these and further ones. */
export function createRouter(
  routes: readonly Route[],
  deps: Pick<AppDependencies, "catalog">,
): (path: string) => Match {
  const byPath = new Map(
    [...routes, REFERENCE].map((each) => [each.path, each]),
  );
  const others = otherRoutesOf(deps);
  return (path) => {
    const whole = byPath.get(path) ?? others().get(path);
    if (whole !== undefined) return { route: whole, id: "" };
    for (const route of routes) {
      if (typeof route.path === "string") continue;
      const id = route.path.exec(path)?.[1];
      if (id !== undefined) return { route, id };
    }
    return { route: OTHER, id: "" };
  };
}

/** Returns the routes of paths that only some model servers have, as these are now. */
function otherRoutesOf({ catalog }: Pick<AppDependencies, "catalog">) {
  let routes = new Map<string, Route>();
  let revision = -1;
  const post = (path: string): Handler => (call, deps) =>
    runRequest(call, forwardToPath(path, call, deps), deps);
  return () => {
    if (revision === catalog.revision) return routes;
    const paths = [...otherPathsOf(catalog)];
    const all = paths.map((path) => routeOf(path, path, { POST: post(path) }));
    routes = new Map(all.map((route) => [route.name, route]));
    revision = catalog.revision;
    return routes;
  };
}
