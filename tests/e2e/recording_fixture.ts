/** A recording to transcribe. */
import { Buffer } from "node:buffer";

const RATE = 16_000;
/** Of the head of a WAV file. */
const HEAD_BYTES = 44;

/** A recording of this many bytes: the head of a WAV file, then silence. */
export function recording(bytes: number): Buffer<ArrayBuffer> {
  const file = Buffer.alloc(bytes);
  file.write("RIFF", 0);
  file.writeUInt32LE(bytes - 8, 4);
  file.write("WAVEfmt ", 8);
  file.writeUInt32LE(16, 16);
  for (const [at, value] of [[20, 1], [22, 1], [32, 2], [34, 16]] as const) {
    file.writeUInt16LE(value, at);
  }
  file.writeUInt32LE(RATE, 24);
  file.writeUInt32LE(2 * RATE, 28);
  file.write("data", 36);
  file.writeUInt32LE(bytes - HEAD_BYTES, 40);
  return file;
}

/** A second of silence. */
export const silence = (): File => {
  const type = "audio/wav";
  return new File([recording(HEAD_BYTES + 2 * RATE)], "silence.wav", { type });
};
