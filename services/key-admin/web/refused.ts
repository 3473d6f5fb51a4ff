import type { ContentfulStatusCode } from "hono/utils/http-status";

/** What may go with a refusal. */
export interface RefusedOptions extends ErrorOptions {
  headers?: Readonly<Record<string, string>>;
  /** Path the page's button leads to. */
  back?: string;
}

/** An expected refusal: becomes a page with this status and text. The text is for the person who sees it. */
export class Refused extends Error {
  override name = "Refused";
  constructor(
    readonly status: ContentfulStatusCode,
    message: string,
    options: RefusedOptions = {},
  ) {
    super(message, options);
    this.headers = options.headers ?? {};
    this.back = options.back ?? "/keys";
  }
  readonly headers: Readonly<Record<string, string>>;
  readonly back: string;
}
