/** The thread of a `Studio`. */
import { parentPort } from "node:worker_threads";
import type { Made, Order } from "./studio.ts";

// Listen at once, since orders that arrive earlier are lost. The drawing code is loaded with the first order.
parentPort?.on("message", (order: Order) => void make(order));

async function make({ id, scene, seconds }: Order): Promise<void> {
  const send = (made: Made) => parentPort?.postMessage(made);
  try {
    const { encodeFilm } = await import("./film.ts");
    const { draw } = await import("./picture.ts");
    const file = seconds === undefined
      ? draw(scene).png
      : await encodeFilm(scene, seconds);
    send({ id, file });
  } catch (error) {
    send({ id, error: String(error) });
  }
}
