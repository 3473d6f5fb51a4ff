/** What stand-ins and tests ask of the Redis of a launcher. */
import { askPort } from "../../support/servers/ask_port.ts";

/** Sends one line, such as `GET kept`, to a Redis and returns its reply. */
export const askRedis = (url = "", line: string) =>
  askPort(Number(new URL(url).port), `${line}\r\n`);
