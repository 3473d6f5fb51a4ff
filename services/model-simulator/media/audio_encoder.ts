/** Encodes 16-bit mono audio while it is made. */
import { Buffer } from "node:buffer";
import { registerFlacEncoder } from "@mediabunny/flac-encoder";
import { registerMp3Encoder } from "@mediabunny/mp3-encoder";
import {
  AudioSample,
  AudioSampleSource,
  FlacOutputFormat,
  Mp3OutputFormat,
  Output,
  StreamTarget,
} from "mediabunny";

type Sounds = AsyncIterable<Int16Array<ArrayBuffer>>;
type Bytes = AsyncGenerator<Uint8Array<ArrayBuffer>>;

export const SAMPLE_RATE = 24_000;
export const AUDIO_TYPES = {
  ...{ mp3: "audio/mpeg", flac: "audio/flac", wav: "audio/wav" },
  ...{ pcm: "audio/pcm" },
} as const;

const SAMPLE_BYTES = 2;
const MP3_BIT_RATE = 64_000;

registerFlacEncoder();
registerMp3Encoder();

/** The file with these sounds, piece by piece. The header of a WAV file states `samples`, the total length. */
export async function* encodeAudio(
  format: keyof typeof AUDIO_TYPES,
  sounds: Sounds,
  samples: number,
): Bytes {
  if (format === "mp3" || format === "flac") {
    return yield* compress(format, sounds);
  }
  if (format === "wav") yield wavHead(samples);
  for await (const sound of sounds) yield new Uint8Array(sound.buffer);
}

async function* compress(codec: "mp3" | "flac", sounds: Sounds): Bytes {
  const ready: Uint8Array[] = [];
  const output = new Output({
    // What was sent cannot be changed.
    format: codec === "mp3"
      ? new Mp3OutputFormat({ xingHeader: false })
      : new FlacOutputFormat({ appendOnly: true }),
    target: new StreamTarget(
      new WritableStream({ write: ({ data }) => void ready.push(data) }),
    ),
  });
  const source = new AudioSampleSource({ codec, bitrate: MP3_BIT_RATE });
  output.addAudioTrack(source);
  await output.start();
  try {
    let timestamp = 0;
    for await (const data of sounds) {
      const sample = new AudioSample({
        ...{ data, format: "s16", numberOfChannels: 1 },
        ...{ sampleRate: SAMPLE_RATE, timestamp },
      });
      timestamp += sample.duration;
      await source.add(sample);
      sample.close();
      if (ready.length > 0) yield Buffer.concat(ready.splice(0));
    }
    await output.finalize();
    if (ready.length > 0) yield Buffer.concat(ready);
  } finally {
    if (output.state !== "finalized") await output.cancel();
  }
}

/** The 44 bytes before the samples of a WAV file, whose size has 32 bits. */
function wavHead(samples: number) {
  const dataBytes = Math.min(samples * SAMPLE_BYTES, 0xffffffff - 36);
  const byteRate = SAMPLE_RATE * SAMPLE_BYTES;
  const head = Buffer.from("RIFF....WAVEfmt ....................data....");
  head.writeUInt32LE(36 + dataBytes, 4);
  // The length of this part; PCM; one channel; the rates; bytes and bits of a sample.
  for (const [at, value] of [16, 0x1_0001, SAMPLE_RATE, byteRate].entries()) {
    head.writeUInt32LE(value, 16 + 4 * at);
  }
  head.writeUInt16LE(SAMPLE_BYTES, 32);
  head.writeUInt16LE(SAMPLE_BYTES * 8, 34);
  head.writeUInt32LE(dataBytes, 40);
  return head;
}
