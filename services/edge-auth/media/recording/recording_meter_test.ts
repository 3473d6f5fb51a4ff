// Promise: the length of a recording is read from its head while its bytes pass by, in
// whatever pieces; where it does not say it, or says what cannot be, a bound follows
// from its size, and no file makes an edge fail or read on without end.
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { MEDIA_LIMITS } from "@gateway/shared/limits";
import { seededRandom } from "../../../../tests/support/seeded_random.ts";
import * as recordingFiles from "./recording_files_fixture.ts";
import { RecordingMeter } from "./recording_meter.ts";

const { OGG_KINDS, oggFile, m4aFile } = recordingFiles;

function secondsOf(file: Uint8Array, pieceBytes = file.length): number {
  const meter = new RecordingMeter();
  for (let at = 0; at < file.length; at += pieceBytes) {
    meter.add(file.subarray(at, at + pieceBytes));
  }
  return meter.units();
}

interface Recording {
  readonly name: string;
  readonly file: Buffer;
  /** By its head, or the rate of its first frame. */
  readonly seconds: number;
}

const RECORDINGS: readonly Recording[] = [
  { name: "WAV", file: recordingFiles.wavFile(90), seconds: 91 },
  { name: "FLAC", file: recordingFiles.flacFile(44_100 * 75), seconds: 75 },
  {
    name: "FLAC with marks",
    file: Buffer.concat([
      recordingFiles.marks(5_000),
      recordingFiles.flacFile(44_100 * 75),
    ]),
    seconds: 75,
  },
  // 383 frames of 1,152 samples at 44.1 kHz.
  {
    name: "MP3, of one rate",
    file: recordingFiles.mp3Frames(383),
    seconds: 10,
  },
  {
    name: "MP3 with marks",
    file: Buffer.concat([
      recordingFiles.marks(200_000),
      recordingFiles.marks(100),
      recordingFiles.mp3Frames(383),
    ]),
    seconds: 10,
  },
  {
    name: "MP3 after other bytes",
    file: Buffer.concat([
      Buffer.from("\xff\xfb\x90\0 is no frame", "latin1"),
      recordingFiles.mp3Frames(383),
    ]),
    seconds: 10,
  },
  {
    name: "MP3 that says its frames",
    file: recordingFiles.mp3Frames(9, recordingFiles.xing(38_281)),
    seconds: 1_000,
  },
  {
    name: "MP3 of another encoder",
    file: recordingFiles.mp3Frames(9, recordingFiles.vbri(3_829)),
    seconds: 101,
  },
  { name: "Opus", file: oggFile(OGG_KINDS.opus, 48_000 * 61), seconds: 61 },
  { name: "Vorbis", file: oggFile(OGG_KINDS.vorbis, 44_100 * 61), seconds: 61 },
  { name: "Speex", file: oggFile(OGG_KINDS.speex, 16_000 * 61), seconds: 61 },
  {
    name: "FLAC in Ogg",
    file: oggFile(OGG_KINDS.flac, 44_100 * 61),
    seconds: 61,
  },
  { name: "M4A", file: m4aFile({ units: 90_500, scale: 1_000 }), seconds: 91 },
  {
    name: "M4A with its head at the end",
    file: m4aFile({ units: 90_500, scale: 1_000, isLast: true }),
    seconds: 91,
  },
  {
    name: "M4A with long numbers",
    file: m4aFile({
      units: 2 ** 33,
      scale: 2 ** 20,
      isLong: true,
      isLast: true,
    }),
    seconds: 8_192,
  },
];

for (const { name, file, seconds } of RECORDINGS) {
  Deno.test(`the length of ${name} is read, in whatever pieces it comes`, () => {
    for (const pieceBytes of [file.length, 1, 7, 4_097]) {
      assert.equal(secondsOf(file, pieceBytes), seconds, `by ${pieceBytes}`);
    }
  });
}

/** What does not say its length: a second may have as little as 2,000 bytes. */
const UNKNOWN: readonly [name: string, file: Buffer][] = [
  ["noise", Buffer.alloc(50_000, 0x55)],
  ["all bits set", Buffer.alloc(50_000, 0xff)],
  ["WAV with MP3 inside", coded(recordingFiles.wavFile(90), 0x55)],
  ["FLAC of no known length", recordingFiles.flacFile(0)],
  ["Opus of no known length", oggFile(OGG_KINDS.opus, 0)],
  ["another sound in Ogg", oggFile("\x80theora", 48_000)],
  [
    "Ogg with other bytes behind",
    Buffer.concat([
      oggFile(OGG_KINDS.opus, 48_000),
      Buffer.alloc(50_000),
    ]),
  ],
  ["M4A in pieces", m4aFile({ units: 0, scale: 1_000 })],
  ["M4A without a scale", m4aFile({ units: 1_000, scale: 0 })],
  [
    "a box of no size",
    Buffer.concat([
      m4aFile({ units: 1, scale: 1 }).subarray(0, 20),
      Buffer.from([0, 0, 0, 2]),
      Buffer.alloc(50_000),
    ]),
  ],
];

for (const [name, file] of UNKNOWN) {
  Deno.test(`${name}: the length follows from the size`, () => {
    const expected = Math.max(1, Math.ceil(file.length / 2_000));
    for (const pieceBytes of [file.length, 11]) {
      assert.equal(secondsOf(file, pieceBytes), expected);
    }
  });
}

/** The file with another code of its samples. */
function coded(file: Buffer, code: number): Buffer {
  const bytes = Buffer.from(file);
  bytes.writeUInt16LE(code, bytes.indexOf("fmt ") + 8);
  return bytes;
}

Deno.test("a head that says too little or too much is not believed", () => {
  const sound = Buffer.alloc(1_920_000);
  const short = m4aFile({ units: 1, scale: 1_000 });
  assert.equal(secondsOf(Buffer.concat([short, sound])), 11);
  const long = m4aFile({ units: 2 ** 31, scale: 1 });
  assert.equal(secondsOf(long), MEDIA_LIMITS.secondsMax);
});

Deno.test("files that are cut short or damaged have a length all the same", () => {
  const random = seededRandom(1);
  for (const { name, file } of RECORDINGS) {
    const whole = file.subarray(0, 6_000);
    for (let round = 0; round < 200; round += 1) {
      const damaged = Buffer.from(
        whole.subarray(0, Math.floor(random() * whole.length)),
      );
      for (let n = 0; n < 3; n += 1) {
        const at = Math.floor(random() * Math.min(damaged.length, 200));
        if (at < damaged.length) damaged[at] = Math.floor(random() * 256);
      }
      const seconds = secondsOf(damaged);
      assert.ok(seconds >= 1 && seconds <= MEDIA_LIMITS.secondsMax, name);
      assert.equal(secondsOf(damaged, 5), seconds, name);
    }
  }
});

Deno.test("a file of a million parts costs little to read", () => {
  const part = Buffer.from("\0\0\0\x08free", "latin1");
  const file = Buffer.concat([
    m4aFile({ units: 1, scale: 1 }).subarray(0, 20),
    Buffer.alloc(8_000_000, part),
    m4aFile({ units: 7, scale: 1 }),
  ]);
  assert.equal(secondsOf(file, 65_536), Math.ceil(file.length / 2_000));
});
