/** A recording to transcribe, and the form that it is sent in. */
import { Buffer } from "node:buffer";

const RATE = 16_000;
/** The length of the head of a WAV file. */
const HEAD_BYTES = 44;

/** A recording of this many bytes: the head of a WAV file, then silence. */
export function recording(bytes: number): Buffer<ArrayBuffer> {
  const file = Buffer.alloc(bytes);
  file.write("RIFF", 0);
  file.writeUInt32LE(bytes - 8, 4);
  file.write("WAVEfmt ", 8);
  file.writeUInt32LE(16, 16);
  file.writeUInt16LE(1, 20); // Uncompressed samples.
  file.writeUInt16LE(1, 22); // One channel.
  file.writeUInt16LE(2, 32); // Bytes of a sample.
  file.writeUInt16LE(16, 34); // Bits of a sample.
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

/** A part of a form. */
export type Field = [name: string, value: string | File];

/** Returns a form with these parts, in this order. */
export function formOf(...fields: readonly Field[]): FormData {
  const data = new FormData();
  for (const [name, value] of fields) data.append(name, value);
  return data;
}
