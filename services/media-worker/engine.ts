import type { BackendConfig } from "@gateway/shared/models/catalog";
import type {
  ImageRequest,
  MediaRequest,
  SpeechRequest,
  TranscriptionRequest,
} from "@gateway/shared/openai/media";
import {
  ModelServer,
  type ModelServerOptions,
} from "@gateway/shared/upstream/model_server";
import type { AttemptProgress } from "@gateway/shared/upstream/pool";
import type { RequestEncoder } from "@gateway/shared/upstream/request_encoder";
import type { JobCall } from "@gateway/shared/worker/job";
import type { AnswerMemory } from "./answer_memory.ts";
import type { ReadOptions } from "./events.ts";
import {
  type EncodedRequest,
  encodeEditForm,
  encodeImageBody,
  passOnPictures,
} from "./images.ts";
import { EVENT_STREAM, MediaAnswer } from "./media_answer.ts";
import { encodeSpeechBody, passOnSpeech } from "./speech.ts";
import {
  encodeTranscriptionForm,
  passOnTranscription,
} from "./transcription.ts";
import { passOnVideo } from "./videos.ts";

/** Options of {@link Engine}. */
export interface EngineOptions extends ModelServerOptions {
  /** Shared by all model servers of the process. */
  memory: AnswerMemory;
  /** Returns text that occurs in no upload, of letters and digits. */
  newBoundary: () => string;
}

/**
 * A model server for speech, images, transcriptions or videos. One call of `run` is one attempt; nothing is repeated.
 * Its errors are those of {@link ModelServer}.
 */
export class Engine {
  readonly config: BackendConfig;
  readonly #server: ModelServer;
  readonly #memory: AnswerMemory;
  readonly #read: ReadOptions;
  readonly #newBoundary: () => string;
  readonly #encodeSpeech: RequestEncoder;
  readonly #encodeImage: RequestEncoder;

  /** Throws an Error if the configuration cannot be used. */
  constructor(options: EngineOptions) {
    const server = new ModelServer(options);
    this.config = options.config;
    this.#server = server;
    this.#memory = options.memory;
    this.#newBoundary = options.newBoundary;
    this.#read = {
      betweenMs: options.config.deadlines.between_tokens_ms,
      redact: server.redact,
    };
    this.#encodeSpeech = server.jsonEncoder(
      "/audio/speech",
      `audio/*, ${EVENT_STREAM}, application/json`,
    );
    this.#encodeImage = server.jsonEncoder(
      "/images/generations",
      `${EVENT_STREAM}, application/json`,
    );
  }

  /** Passes on the server's answer, and returns what was made, see {@link MediaAnswer}. */
  async run(
    request: MediaRequest,
    call: JobCall,
    progress: AttemptProgress,
  ): Promise<number> {
    const answer = new MediaAnswer(call, progress, request);
    switch (request.kind) {
      case "speech":
        await this.#speak(request, answer);
        break;
      case "image":
        await this.#draw(request, answer);
        break;
      case "transcription":
        await this.#transcribe(request, answer);
        break;
      case "video":
        await passOnVideo({
          ...{ request, answer, server: this.#server, read: this.#read },
          newBoundary: this.#newBoundary,
        });
    }
    return answer.made;
  }

  /** Closes idle connections. Running attempts continue. */
  close(): void {
    this.#server.close();
  }

  #speak(request: SpeechRequest, answer: MediaAnswer): Promise<void> {
    const { call } = answer;
    return this.#server.exchange({
      encode: this.#encodeSpeech,
      body: encodeSpeechBody(request, this.config),
      call,
      signal: call.signal,
      mustBeginSoon: true,
    }, (response) => passOnSpeech(response, request, answer, this.#read));
  }

  async #draw(request: ImageRequest, answer: MediaAnswer): Promise<void> {
    const server = this.#server;
    const held = this.#memory.open();
    const endsAtMs = server.now() + this.config.deadlines.total_ms;
    const call = { request, server, answer, read: this.#read, held, endsAtMs };
    const encoded = request.task === "generate"
      ? {
        encode: this.#encodeImage,
        body: encodeImageBody(request, this.config),
      }
      : this.#form(
        "/images/edits",
        `${EVENT_STREAM}, application/json`,
        encodeEditForm(
          request,
          this.config,
          answer.call.files,
          this.#newBoundary(),
        ),
      );
    try {
      await passOnPictures(call, encoded);
    } finally {
      held.release();
    }
  }

  #transcribe(
    request: TranscriptionRequest,
    answer: MediaAnswer,
  ): Promise<void> {
    const { call } = answer;
    const form = encodeTranscriptionForm(
      request,
      this.config.model,
      call.files,
      this.#newBoundary(),
    );
    const path = request.task === "translate"
      ? "translations"
      : "transcriptions";
    const accept = `application/json, ${EVENT_STREAM}, text/*`;
    return this.#server.exchange({
      ...this.#form(`/audio/${path}`, accept, form),
      call,
      signal: call.signal,
      // The text of a recording may not start before the whole recording was processed.
      mustBeginSoon: request.stream,
    }, (response) => {
      const read = this.#read;
      return passOnTranscription(response, { request, answer, read });
    });
  }

  /** The request that posts a form to a path below the base URL. */
  #form(
    path: string,
    accept: string,
    { contentType, body }: { contentType: string; body: Uint8Array },
  ): EncodedRequest {
    const url = new URL(`${this.config.base_url}${path}`);
    const post = { method: "POST", accept, contentType } as const;
    return { encode: this.#server.encoder(url, post), body };
  }
}
