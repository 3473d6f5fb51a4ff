/** The commands of operators, `kubectl` and `helm`, for the cluster of a test. */
import { PROGRAMS } from "./install.ts";

/** What a command wrote. */
export interface Written {
  out: string;
  /** Warnings of the server are here. */
  error: string;
}

/** Runs commands with the access to one cluster. */
export class Commands {
  readonly #env: Record<string, string>;
  readonly #folder: string;

  /** `folder` is for files of the commands; `kubeconfig` names the cluster. */
  constructor(folder: string, kubeconfig: string) {
    this.#folder = folder;
    this.#env = { HOME: folder, KUBECONFIG: kubeconfig };
  }

  /** Runs `kubectl` and returns its standard output; throws with what it says. */
  async kubectl(...args: string[]): Promise<string> {
    return (await this.run("kubectl", args)).out;
  }

  /** The same with `helm`. */
  async helm(...args: string[]): Promise<string> {
    return (await this.run("helm", args)).out;
  }

  /** Runs `kubectl … --filename` with a text, YAML or JSON. */
  async send(text: string, ...args: string[]): Promise<Written> {
    const path = await Deno.makeTempFile({ dir: this.#folder });
    await Deno.writeTextFile(path, text);
    return await this.run("kubectl", [...args, "--filename", path]);
  }

  /** Runs one of the programs; throws with what it says if it fails. */
  async run(program: string, args: readonly string[]): Promise<Written> {
    const { success, stdout, stderr } = await new Deno.Command(
      `${PROGRAMS}/${program}`,
      { args: [...args], env: this.#env, stdin: "null" },
    ).output();
    const [out, error] = [stdout, stderr].map((bytes) =>
      new TextDecoder().decode(bytes).trim()
    );
    if (success) return { out: out ?? "", error: error ?? "" };
    throw new Error(`${program} ${args.join(" ")}: ${error}`);
  }
}
