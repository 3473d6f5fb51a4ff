/** A mail server that keeps what it gets, as far as a program that sends needs one. */

/** A mail, and who sent it. */
export interface Mail {
  from: string;
  to: string;
  /** The decoded argument of AUTH PLAIN. */
  login: string;
  /** Its headers and its text. */
  text: string;
}

const decoder = new TextDecoder();
const encoder = new TextEncoder();

/** Listens on a port of 127.0.0.1 until it is disposed of. */
export function startMailbox() {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const mails: Mail[] = [];
  const serving = (async () => {
    for await (const connection of listener) {
      await serve(connection, mails);
      connection.close();
    }
  })();
  return {
    port: listener.addr.port,
    mails,
    async [Symbol.asyncDispose]() {
      listener.close();
      await serving;
    },
  };
}

async function serve(connection: Deno.Conn, mails: Mail[]): Promise<void> {
  const say = (line: string) => connection.write(encoder.encode(`${line}\r\n`));
  const mail: Mail = { from: "", to: "", login: "", text: "" };
  let isData = false;
  await say("220 mailbox");
  for await (const line of linesOf(connection)) {
    if (isData && line !== ".") {
      mail.text += `${line}\r\n`;
      continue;
    }
    const [verb = ""] = line.toUpperCase().split(/[ :]/);
    const address = /<([^>]*)>/.exec(line)?.[1] ?? "";
    if (verb === "EHLO") await say("250-mailbox\r\n250 AUTH PLAIN");
    else if (verb === "AUTH") {
      mail.login = decoder.decode(
        Uint8Array.fromBase64(line.split(" ")[2] ?? ""),
      );
      await say("235 welcome");
    } else if (verb === "DATA") {
      isData = true;
      await say("354 go on");
    } else {
      if (line.toUpperCase().startsWith("MAIL FROM")) mail.from = address;
      if (verb === "RCPT") mail.to = address;
      if (verb === ".") {
        isData = false;
        mails.push({ ...mail });
      }
      await say(verb === "QUIT" ? "221 bye" : "250 ok");
      if (verb === "QUIT") return;
    }
  }
}

async function* linesOf(connection: Deno.Conn): AsyncGenerator<string> {
  let rest = "";
  const bytes = new Uint8Array(4_096);
  for (;;) {
    const count = await connection.read(bytes);
    if (count === null) return;
    const lines = (rest + decoder.decode(bytes.subarray(0, count)))
      .split("\r\n");
    rest = lines.pop() ?? "";
    yield* lines;
  }
}
