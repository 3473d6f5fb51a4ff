/** What distinguishes one endpoint that runs a model from another. */
import type { JobRequest } from "@gateway/shared/bus/job";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { ModelKind } from "@gateway/shared/models/kinds";
import type { FormBounds } from "../http/read_form.ts";
import type { Estimate } from "../limits/cost.ts";
import type { Answer, AnswerOptions } from "./answer.ts";

/** Makes what receives the answer of one request. */
export type AnswerMaker = (options: AnswerOptions) => Answer;

/** An endpoint whose requests are run by workers. */
export interface Endpoint<Request extends JobRequest> {
  readonly kind: ModelKind;
  /** The model, where the path decides it: for errors before the body was read. */
  readonly model?: string;
  /** Whether it costs nothing and has a bound of its own; default: false. */
  readonly isFree?: boolean;
  /** Whether its answers are kept for those who ask for it; default: false. */
  readonly isKept?: boolean;
  /** Whether its requests are counted, but cost no tokens or units; default: false. */
  readonly isUnmetered?: boolean;
  /** The kind of the model of a request, where that may be another than `kind`. */
  kindOf?(request: Request, catalog: Catalog): ModelKind;
  /** The kinds of models that a faulty request may be for, if not only `kind`. */
  kindsFor?(model: string | null, catalog: Catalog): readonly ModelKind[];
  /**
   * Reads the bytes of a body. Throws an `ApiError`. Absent: they are parsed as JSON.
   */
  decode?(bytes: Uint8Array): unknown;
  /**
   * Checks a parsed body, or the fields of a form, and converts it. Throws an
   * `ApiError` for its first fault.
   */
  parse(body: unknown, catalog: Catalog): Request;
  /**
   * Returns the part of a decoded body that shows which conversation the request
   * belongs to. Absent: it belongs to none.
   */
  conversation?(body: unknown): unknown;
  /** Returns the members of a decoded body. Absent: it is what was decoded. */
  members?(body: unknown): unknown;
  /** What a request may cost. */
  estimate(request: Request, catalog: Catalog): Estimate;
  /**
   * How a request is answered. The result lives as long as the run, so it keeps some
   * facts about the request, never the request itself, which may have 20 MB.
   */
  answer(request: Request): AnswerMaker;
}

/** Measures what a file costs, by its bytes. */
export interface FileMeter {
  /** Takes the next bytes of the file. */
  add(bytes: Uint8Array): void;
  /**
   * Returns its units, once all of it was taken; where it does not say, as many as it
   * may have.
   */
  units(): number;
}

/** What files the forms of an endpoint have. */
export interface UploadBounds extends Pick<FormBounds, "files"> {
  /** The size of one file, in bytes, for models that do not say `file_bytes`. */
  readonly fileBytesMax: number;
}

/** An endpoint whose requests are forms with files. */
export interface UploadEndpoint<Request extends JobRequest>
  extends Endpoint<Request> {
  readonly form: UploadBounds;
  /**
   * What a request costs at least, whatever its fields say: reserved while its form
   * arrives.
   */
  readonly least: Estimate;
  /**
   * Measures the file `file`, so that budgets hold what it may cost. Absent or null:
   * that is known without it, or has no price.
   */
  meter?(catalog: Catalog): FileMeter | null;
}
