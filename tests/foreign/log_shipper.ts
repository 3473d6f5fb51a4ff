// Promise: the log shipper of compose copies each line of the gateway once, also of
// files that Docker rotates and across a restart, and nothing of other containers. Run
// by `deno task test:foreign`.
import assert from "node:assert/strict";
import {
  CACHE,
  installOnce,
  makeTempDir,
  print,
  startProcess,
} from "../support/process.ts";
import { until } from "../support/wait_for.ts";

/** The collector of compose, of the parts that its configuration names. */
const VERSION = "0.165.0";
const OTEL = "go.opentelemetry.io/collector";
const CONTRIB = "github.com/open-telemetry/opentelemetry-collector-contrib";
const cwd = `${CACHE}/chat-gateway-foreign/otelcol`;
const REPOSITORY = new URL("../../", import.meta.url);
const SHIP_MS = 30_000;

/**
 * The first line of the builder fails where modules are missing that only tests of
 * these parts need; what it has written by then is enough.
 */
const INSTALL = `
cat >builder.yaml <<'YAML'
dist: { module: example.test/otelcol, name: otelcol, output_path: ./dist }
receivers: [{ gomod: ${CONTRIB}/receiver/filelogreceiver v${VERSION} }]
processors: [{ gomod: ${OTEL}/processor/batchprocessor v${VERSION} }]
exporters: [{ gomod: ${CONTRIB}/exporter/fileexporter v${VERSION} }]
extensions: [{ gomod: ${CONTRIB}/extension/storage/filestorage v${VERSION} }]
YAML
GOBIN=$PWD go install ${OTEL}/cmd/builder@v${VERSION}
./builder --config builder.yaml --skip-compilation || true
cd dist && go build -mod=mod -o ../otelcol .
`;

/** A line as Docker's driver `json-file` writes it. */
const dockerLine = (log: string): string =>
  `${
    JSON.stringify({ log: `${log}\n`, stream: "stdout", time: "2026-11-29" })
  }\n`;

const ourLine = (n: number): string =>
  JSON.stringify({
    time: "2026-11-29T12:00:00.000Z",
    level: "info",
    service: "edge-auth",
    event: "request",
    n,
  });

/** The folders of a machine, and the collector on them. */
class Shipper {
  readonly #path: string;
  readonly containers: string;

  constructor(path: string) {
    this.#path = path;
    this.containers = `${path}/containers`;
  }

  async prepare(): Promise<void> {
    const file = new URL("deploy/observability/logs.yml", REPOSITORY);
    const text = (await Deno.readTextFile(file))
      .replaceAll("/var/lib/docker/containers", this.containers)
      .replaceAll("/logs", `${this.#path}/logs`);
    await Deno.writeTextFile(`${this.#path}/logs.yml`, text);
    for (
      const folder of ["logs", "containers", "containers/a", "containers/b"]
    ) {
      await Deno.mkdir(`${this.#path}/${folder}`);
    }
  }

  start() {
    return startProcess({
      command: `${cwd}/otelcol`,
      args: [`--config=${this.#path}/logs.yml`],
    });
  }

  /** Appends lines to the log of a container. */
  async write(container: string, lines: readonly string[]): Promise<void> {
    const file = `${this.containers}/${container}/${container}-json.log`;
    const text = lines.map(dockerLine).join("");
    await Deno.writeTextFile(file, text, { append: true });
  }

  /** As Docker does with a file that has become large. */
  async rotate(container: string): Promise<void> {
    const file = `${this.containers}/${container}/${container}-json.log`;
    await Deno.rename(file, `${file}.1`);
  }

  /** The lines in the volume, as docs/observe.md reads them. */
  async shipped(): Promise<string[]> {
    const file = `${this.#path}/logs/gateway.log`;
    const text = await Deno.readTextFile(file).catch(() => "");
    return text.split("\n").filter((line) => line !== "").flatMap((line) =>
      JSON.parse(line).resourceLogs.flatMap((
        { scopeLogs }: { scopeLogs: { logRecords: LogRecord[] }[] },
      ) =>
        scopeLogs.flatMap(({ logRecords }) =>
          logRecords.map(({ body }) => body.stringValue)
        )
      )
    );
  }
}

/** A line in OTLP's JSON. */
interface LogRecord {
  readonly body: { readonly stringValue: string };
}

const numbersIn = (lines: readonly string[]): number[] =>
  lines.map((line) => Number(JSON.parse(line).n)).sort((a, b) => a - b);

const countTo = (count: number): number[] =>
  Array.from({ length: count }, (_, n) => n);

function addTest(): void {
  Deno.test(`the shipper of compose, OpenTelemetry collector ${VERSION}, copies each line of the gateway once`, async () => {
    const compose = await Deno.readTextFile(
      new URL("compose.yaml", REPOSITORY),
    );
    assert.ok(compose.includes(`collector-contrib:${VERSION}}`), "of compose");
    await using folder = await makeTempDir();
    const shipper = new Shipper(folder.path);
    await shipper.prepare();
    // Written before the shipper starts.
    await shipper.write("a", countTo(100).map(ourLine));
    await shipper.write("b", [
      "GET / 200",
      '{"level":"info","msg":"not ours"}',
    ]);
    const count = async () => (await shipper.shipped()).length;
    {
      await using first = shipper.start();
      await until(async () => await count() >= 100, SHIP_MS);
      await shipper.rotate("a");
      await shipper.write("a", countTo(200).slice(100).map(ourLine));
      await until(async () => await count() >= 200, SHIP_MS);
      first.signal("SIGTERM");
      await first.exited;
      assert.equal(first.output(), "", "docs: empty if all is well");
    }
    await shipper.write("a", countTo(300).slice(200).map(ourLine));
    await using _second = shipper.start();
    await until(async () => await count() >= 300, SHIP_MS);
    await shipper.write("a", [ourLine(300)]);
    await until(async () => await count() >= 301, SHIP_MS);
    assert.deepEqual(numbersIn(await shipper.shipped()), countTo(301));
  });
}

try {
  await installOnce(`otelcol-${VERSION}`, INSTALL, { cwd });
  addTest();
} catch (error) {
  const reason = String(error).trim().split("\n").at(-1);
  print(`Left out: OpenTelemetry collector ${VERSION}: ${reason}`);
}
