/**
 * Log lines on their way to standard output. Lines of one event-loop turn go out
 * in one write: a write per line costs more than everything else about a log line.
 */

/** Most characters that wait for a reader who does not read; beyond, lines are dropped and counted. */
const WAITING_CHARS_MAX = 4 * 1024 * 1024;

export interface LineWriter {
  /** Takes one line without its line end. Never blocks, never throws. */
  write(line: string): void;
  /** Resolves when everything taken so far is out. */
  flush(): Promise<void>;
}

/** Where bytes go: `Deno.stdout` in a service. */
export interface ByteSink {
  write(bytes: Uint8Array): Promise<number>;
}

export function createLineWriter(sink: ByteSink): LineWriter {
  const encoder = new TextEncoder();
  let waiting = "";
  let dropped = 0;
  let writing: Promise<void> | null = null;

  const writeAll = async (bytes: Uint8Array) => {
    for (let offset = 0; offset < bytes.length;) {
      offset += await sink.write(bytes.subarray(offset));
    }
  };
  const pump = async () => {
    await Promise.resolve(); // Lets the turn's other lines join.
    while (waiting !== "") {
      const text = waiting;
      waiting = "";
      if (dropped > 0) {
        waiting =
          `{"level":"warn","event":"log_lines_dropped","count":${dropped}}\n`;
        dropped = 0;
      }
      try {
        await writeAll(encoder.encode(text));
      } catch {
        // The reader is gone: logging must not take the service down with it.
        waiting = "";
      }
    }
    writing = null;
  };
  return {
    write(line) {
      if (waiting.length > WAITING_CHARS_MAX) {
        dropped += 1;
        return;
      }
      waiting += line + "\n";
      writing ??= pump();
    },
    async flush() {
      while (writing !== null) await writing;
    },
  };
}
