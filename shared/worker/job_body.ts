/** The body of a job that comes in pieces, and the memory that it needs. */
import {
  type BodyPiece,
  UploadAssembly,
  type UploadedRequest,
} from "../bus/job.ts";
import type { HeldBytes, WorkerMemory } from "./memory.ts";

/** What a piece has made of a body. */
export interface AddedPiece {
  /** `more`: further pieces follow. */
  readonly body: "more" | "invalid" | UploadedRequest;
  /**
   * Resolves when there is memory for it, and rejects with `overloaded` after a second;
   * undefined: there is.
   */
  readonly room: Promise<void> | undefined;
}

/** Collects the pieces of one request, and counts them until it is released. */
export class JobBody {
  readonly #assembly = new UploadAssembly();
  readonly #pieces: HeldBytes;
  /** What is made of a request in JSON, besides its pieces. */
  readonly #request: HeldBytes;

  /** Counts in the memory of the process. */
  constructor(memory: Pick<WorkerMemory, "openUpload" | "openRequest">) {
    this.#pieces = memory.openUpload();
    this.#request = memory.openRequest();
  }

  /** Takes a copy of the next piece. */
  add(piece: BodyPiece): AddedPiece {
    const body = this.#assembly.add(piece);
    if (body === "more") {
      return { body, room: this.#pieces.grow(piece.bytes.length) };
    }
    const isJson = typeof body === "object" && body.files.length === 0;
    const room = isJson ? this.#request.grow(this.#pieces.bytes) : undefined;
    return { body, room };
  }

  /** Nobody needs the request or its files any more. */
  release(): void {
    this.#pieces.release();
    this.#request.release();
  }
}
