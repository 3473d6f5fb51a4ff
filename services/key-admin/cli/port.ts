/** What commands ask: the admin API, over the Redis of this machine or elsewhere. */
import type { z } from "zod";
import type { AdminRoute } from "../api/route.ts";

/** What a request is sent with, besides its path. */
export interface PortRequest {
  /** Empty and undefined ones are left out. */
  readonly query?: Readonly<Record<string, string | undefined>>;
  /** Undefined members are left out. */
  readonly body?: object;
}

/** The beginning of a request: `GET /keys`. Ids in the path are percent-encoded. */
export type PortLine = `${AdminRoute["method"]} /${string}`;

/** The admin API, wherever it is. */
export interface AdminPort {
  /**
   * Sends a request and reads its answer, which is of this schema. Throws an
   * `AdminRefused` if it is refused; the local one throws errors of the domain, too.
   */
  ask<Answer extends z.ZodType>(
    answer: Answer,
    line: PortLine,
    sent?: PortRequest,
  ): Promise<z.output<Answer>>;
}

/** The query without what is empty. */
export const queryOf = ({ query = {} }: PortRequest): Record<string, string> =>
  Object.fromEntries(
    Object.entries(query).flatMap(([name, text]) =>
      text === undefined || text === "" ? [] : [[name, text]]
    ),
  );
