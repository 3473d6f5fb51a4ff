import { Worker } from "node:worker_threads";
import type { Scene } from "./picture.ts";

/** What the thread is asked for: a PNG file or, with `seconds`, an MP4 file. */
export interface Order {
  id: number;
  scene: Scene;
  seconds?: number;
}
/** A file, or why there is none. */
export type Made = { id: number } & ({ file: Uint8Array } | { error: string });

const THREAD = new URL("studio_thread.ts", import.meta.url);

/**
 * Draws images and videos on a separate thread, which starts with the first of them:
 * a large image takes a tenth of a second, which would hold up all other answers.
 */
export class Studio implements AsyncDisposable {
  #thread: Worker | null = null;
  #count = 0;
  readonly #orders = new Map<number, PromiseWithResolvers<Uint8Array>>();

  /** A PNG file. Rejects if it cannot be drawn, or the studio is closed. */
  picture(scene: Scene): Promise<Uint8Array> {
    return this.#make({ scene });
  }

  /** An MP4 file, in the same way. Width and height are even. */
  film(scene: Scene, seconds: number): Promise<Uint8Array> {
    return this.#make({ scene, seconds });
  }

  /** Ends the thread. */
  async [Symbol.asyncDispose](): Promise<void> {
    const thread = this.#thread;
    this.#close(new Error("The simulator has stopped"));
    await thread?.terminate();
  }

  #make(order: Omit<Order, "id">): Promise<Uint8Array> {
    const id = this.#count++;
    const made = Promise.withResolvers<Uint8Array>();
    this.#orders.set(id, made);
    this.#thread ??= this.#open();
    this.#thread.postMessage({ ...order, id } satisfies Order);
    return made.promise;
  }

  #open(): Worker {
    const thread = new Worker(THREAD);
    thread.on("message", (made: Made) => {
      const order = this.#orders.get(made.id);
      this.#orders.delete(made.id);
      if ("file" in made) order?.resolve(made.file);
      else order?.reject(new Error(made.error));
    });
    thread.on("error", (error: Error) => this.#close(error));
    return thread;
  }

  #close(error: Error): void {
    this.#thread = null;
    for (const order of this.#orders.values()) order.reject(error);
    this.#orders.clear();
  }
}
