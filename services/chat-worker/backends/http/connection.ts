import type { ByteConnection } from "./connect.ts";

/** Size of the read buffer, and with it the bound of a response head. */
const READ_BUFFER_BYTES: number = 16 * 1024;

/**
 * A connection with its read buffer. While it is idle a read is in flight, so
 * that its end is noticed when it happens and not by the next request; that read
 * then becomes the first one of the next response.
 */
export interface Connection {
  /** Bytes of the last read. Overwritten by the next one. */
  readonly buffer: Uint8Array;
  /** It has carried a request before, so the server may have hung up in the meantime. */
  readonly isReused: boolean;
  readonly idleSinceMs: number;
  readonly isOpen: boolean;
  /** Reads into the buffer from `at` on; null at the end of the stream. */
  read(at: number): Promise<number | null>;
  /** Writes all of `bytes`; `onProgress` is told when it takes more than one step. */
  write(bytes: Uint8Array, onProgress: () => void): Promise<void>;
  /** Starts the idle read. `onEvent` is called if it ends before {@link wake}. */
  sleep(nowMs: number, onEvent: () => void): void;
  wake(): void;
  /** Closes at once, as often as one likes. */
  close(): void;
}

/** Wraps a new connection. */
export function createConnection(raw: ByteConnection): Connection {
  const buffer = new Uint8Array(READ_BUFFER_BYTES);
  let idleRead: Promise<number | null> | null = null;
  let isIdle = false;
  let isReused = false;
  let isClosed = false;
  let idleSinceMs = 0;

  return {
    buffer,
    get isReused() {
      return isReused;
    },
    get idleSinceMs() {
      return idleSinceMs;
    },
    get isOpen() {
      return !isClosed;
    },
    read(at) {
      if (idleRead === null) {
        return raw.read(at === 0 ? buffer : buffer.subarray(at));
      }
      const reading = idleRead;
      idleRead = null;
      return reading;
    },
    async write(bytes, onProgress) {
      let written = await raw.write(bytes);
      while (written < bytes.length) {
        onProgress();
        written += await raw.write(bytes.subarray(written));
      }
    },
    sleep(nowMs, onEvent) {
      isIdle = true;
      isReused = true;
      idleSinceMs = nowMs;
      idleRead = raw.read(buffer);
      const notice = () => {
        if (isIdle) onEvent();
      };
      idleRead.then(notice, notice);
    },
    wake() {
      isIdle = false;
    },
    close() {
      isIdle = false;
      if (isClosed) return;
      isClosed = true;
      raw.close();
    },
  };
}
