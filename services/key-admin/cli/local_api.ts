/** The admin API in this process, over Redis. It needs no admin key. */
import type { z } from "zod";
import type { AdminDeps } from "../api/route.ts";
import { ADMIN_ROUTES } from "../api/routes.ts";
import {
  type AdminPort,
  type PortLine,
  type PortRequest,
  queryOf,
} from "./port.ts";

/** Whom the audit log names for a change by a command. */
const COMMAND_LINE = { by: "command line", ip: "" } as const;

/** Runs the routes themselves; their errors come as they are. */
export class LocalApi implements AdminPort {
  readonly #deps: AdminDeps;

  constructor(deps: AdminDeps) {
    this.#deps = deps;
  }

  async ask<Answer extends z.ZodType>(
    answer: Answer,
    line: PortLine,
    sent: PortRequest = {},
  ): Promise<z.output<Answer>> {
    const { route, params } = find(line);
    const { json } = await route.run({
      deps: this.#deps,
      actor: COMMAND_LINE,
      key: null,
      params,
      id: params.id ?? "",
      query: queryOf(sent),
      body: route.method === "GET" || route.method === "DELETE"
        ? undefined
        : JSON.parse(JSON.stringify(sent.body ?? {})),
      idempotencyKey: undefined,
      ifMatch: undefined,
    });
    return answer.parse(json);
  }
}

/** The route of a request, and the parameters in its path. */
function find(line: PortLine) {
  const [method, path = ""] = line.split(" ");
  const parts = path.split("/");
  for (const route of ADMIN_ROUTES) {
    const names = route.path.split("/");
    const isFit = route.method === method && names.length === parts.length &&
      names.every((name, at) => name.startsWith(":") || name === parts[at]);
    if (!isFit) continue;
    const params = names.flatMap((name, at): [string, string][] =>
      name.startsWith(":")
        ? [[name.slice(1), decodeURIComponent(parts[at] ?? "")]]
        : []
    );
    return { route, params: Object.fromEntries(params) };
  }
  throw new Error(`The admin API has no route for ${line}`);
}
