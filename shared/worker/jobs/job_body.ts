/** The body of a job that comes in pieces, and the memory that it needs. */
import {
  type BodyPiece,
  type CompleteUpload,
  UploadAssembly,
} from "../../bus/job.ts";
import type { HeldBytes, JobMemory } from "./memory.ts";

/** The state of a body after a piece was added. */
export interface AddedPiece {
  /** `more`: further pieces follow. */
  readonly body: "more" | "invalid" | CompleteUpload;
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
  /** The copies that will be made of a request in JSON, besides its pieces. */
  readonly #copies: HeldBytes;
  readonly #isJsonOnly: boolean;

  /**
   * Counts its pieces in the memory of its job. `isJsonOnly`: no files will come,
   * so each piece is counted together with the copies that will be made of it.
   */
  constructor(
    memory: Pick<JobMemory, "openUpload" | "openCopies">,
    { isJsonOnly }: { isJsonOnly: boolean },
  ) {
    this.#pieces = memory.openUpload();
    this.#copies = memory.openCopies();
    this.#isJsonOnly = isJsonOnly;
  }

  /** Takes a copy of the next piece. */
  add(piece: BodyPiece): AddedPiece {
    const body = this.#assembly.add(piece);
    const { length } = piece.bytes;
    if (body === "more") {
      const room = this.#pieces.grow(length);
      const copies = this.#isJsonOnly ? this.#copies.grow(length) : undefined;
      return {
        body,
        room: room && copies ? all(room, copies) : room ?? copies,
      };
    }
    const isJson = typeof body === "object" && body.isJson;
    const missing = this.#pieces.bytes - this.#copies.bytes;
    return { body, room: isJson ? this.#copies.grow(missing) : undefined };
  }

  /** Nobody needs the request or its files any more. */
  release(): void {
    this.#pieces.release();
    this.#copies.release();
  }
}

async function all(...rooms: Promise<void>[]): Promise<void> {
  await Promise.all(rooms);
}
