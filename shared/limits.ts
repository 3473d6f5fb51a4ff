/**
 * Every bound of the product in one place: what it limits, why it has this value, and
 * what happens beyond it. A value that an operator may change is the *default* of a
 * variable in a service's `config.ts`; the rest are part of the contract. Those of
 * keys are in `keys/limits.ts`.
 */

const KIB = 1024;
const MIB = 1024 * KIB;

/** Bounds of requests. Beyond one: HTTP 400, unless stated otherwise. */
export const REQUEST_LIMITS = {
  /** The whole body, default of `BODY_BYTES_MAX`: a few large images. Beyond: 413. */
  bodyBytesMax: 20 * MIB,
  /**
   * All bodies that an edge holds, default of `BODIES_BYTES_MAX`: with what an idle
   * edge needs, and the copies while one is parsed, less than 700 MiB. Beyond: 503.
   */
  bodiesBytesMax: 256 * MIB,
  /** The `Authorization` header. Ours has 58 bytes. Beyond: 401. */
  authorizationBytesMax: 8 * KIB,
  /** Levels of JSON. Schemas in tools reach about 20. */
  depthMax: 64,
  /** Members at the top, known or not: 100,000 distinct ones take 19 ms to parse. */
  topLevelKeysMax: 64,
  /** Members of all objects. 4,096 messages with a tool call each have 37,000. */
  membersMax: 65_536,
  /**
   * Lists and objects: a third of a million empty ones, in a megabyte, would take the
   * edge, its worker and the model server 50 ms each. 4,096 messages with a tool call
   * and parts have 25,000.
   */
  containersMax: 65_536,
  /** Bytes outside of strings: a megabyte of them takes 17 ms, one of text 1 ms. */
  structureBytesMax: 2 * MIB,
  messagesMax: 4096,
  contentPartsMax: 1024,
  modelCharsMax: 200,
  toolsMax: 128,
  toolCallsPerMessageMax: 128,
  /** The name of a tool or a schema. */
  nameCharsMax: 64,
  stopMax: 16,
  stopCharsMax: 512,
  nMax: 8,
  temperature: [0, 2],
  topP: [0, 1],
  penalty: [-2, 2],
  topLogprobsMax: 20,
} as const;

/** Deadlines for reading a request body. Beyond: 408, and the connection is closed. */
export const BODY_DEADLINES = {
  /** How long no byte may arrive. */
  progressMs: 15_000,
  /** How long the whole body may take. */
  totalMs: 60_000,
} as const;

/**
 * A body for which an edge has no room waits this long before it is read, because the
 * runs of others end. Beyond: 503, or 429 if its key holds its share.
 */
export const BODY_WAIT_MS = 2_000;

/**
 * How finely a request body may be divided, by HTTP chunks or network packets. Reading
 * a piece costs 11 us, however small it is. Beyond: 400, and it counts as a bad body.
 */
export const BODY_PIECES = {
  /** Pieces of a body of any size: 45 ms, as much as parsing its structure may take. */
  free: 4_096,
  /**
   * A larger body may have one more piece for this many bytes. Packets have more than a
   * thousand.
   */
  bytesMin: 512,
} as const;

/** CPU time that a key's refused bodies may take (`read_body.ts`). Beyond: 429. */
export const REFUSED_BODIES = {
  /** In the long term: parsing a megabyte of hostile JSON takes up to 29 ms. */
  shareOfCore: 1 / 40,
  burstMs: 50,
  /** A request of a key that owes more waits up to this long, then is refused. */
  waitMs: 1_000,
  /** Parsing is charged at most this, three times what hostile JSON takes here. */
  leastMs: 0.4,
  msPerByte: 0.000_1,
  /** What each piece of a body with too many pieces is charged. */
  pieceMs: 0.011,
  /** Keys to remember; the least recently used one is dropped. */
  keysMax: 10_000,
} as const;

/** The public HTTP server. */
export const SERVER_LIMITS = {
  /** Request line and headers. Beyond: 431. */
  headBytesMax: 32 * KIB,
  /** How long request line and headers may take to arrive. Beyond: 408. */
  headMs: 60_000,
  /**
   * How long a whole request may take to arrive, even one answered before its body was
   * read.
   */
  requestMs: 120_000,
  /** Unanswered requests of a connection. Beyond: it is closed. */
  callsMax: 100,
  /** How often the server looks for overdue requests. */
  checkMs: 5_000,
  /**
   * A connection without a request. Longer than proxies keep theirs, so that the proxy
   * closes it first.
   */
  idleMs: 620_000,
  /**
   * How long a client may continue to send after a response with `Connection: close`.
   */
  lingerMs: 2_000,
  /** How long a stopping server waits for the next request on a kept connection. */
  lastMs: 1_000,
  /**
   * How long a client may take to read the rest of a finished answer, in addition to
   * its bytes at 16 KB/s.
   */
  restMs: 60_000,
  restBytesPerMs: 16,
} as const;

/** What is believed of the counts of a model server. */
export const TOKEN_LIMITS = {
  /**
   * The tokens of a prompt and its answer, for models whose list does not state
   * `context_tokens`: the longest context that is common, times two. A larger count is
   * a fault of the server, and is charged as this many.
   */
  contextTokensMax: 2_097_152,
} as const;

/** Server-sent events to the client. */
export const SSE_LIMITS = {
  /**
   * Silence before a `: keep-alive` comment. Not sooner: some hand-written clients fail
   * on comments.
   */
  keepAliveMs: 15_000,
  /**
   * A stream without a first token is opened after this long, default of
   * `STREAM_HEAD_SECONDS`: many proxies cut a silent connection after 30 to 60 s.
   */
  headMs: 20_000,
  /** A client that reads nothing for this long is disconnected. */
  slowClientMs: 60_000,
} as const;

/** The stream protocol between worker and edge, see `bus/frame.ts`. */
export const STREAM_LIMITS = {
  /** Unacknowledged bytes a worker keeps for replay; also the credit window. */
  windowBytes: 256 * KIB,
  /**
   * Payload of one DATA frame: a quarter of the window, well below NATS' default limit
   * of 1 MB.
   */
  framePayloadBytesMax: 64 * KIB,
  /** One chunk of a stream: as much as a whole answer, since it may hold an image. */
  lineBytesMax: 32 * MIB,
  /**
   * The edge acknowledges after this many delivered bytes or frames, whichever is
   * first.
   */
  ackBytes: 64 * KIB,
  ackFrames: 32,
  /**
   * A worker with nothing to send sends a BEAT this often, with its last sequence
   * number.
   */
  idleBeatMs: 1_000,
  /** Silence after which the edge requests frames that may be lost. */
  silenceProbeMs: 1_250,
  /**
   * Silence after which it abandons the stream. Missing beats of the worker usually
   * reveal the loss sooner.
   */
  silenceLostMs: 10_000,
  /**
   * At most one NAK per stream in this time, and one replay; doubled up to the maximum
   * while NAKs have no effect.
   */
  nakIntervalMs: 50,
  nakIntervalMaxMs: 1_000,
  /**
   * Sent again at once; the rest of a replay follows tick by tick, so that 1,000
   * streams do not flood a bus that has just recovered.
   */
  replayBytes: 64 * KIB,
  /** An END without an acknowledgement is repeated this often, until `endForgetMs`. */
  endRetryMs: 1_000,
  /**
   * A worker that receives nothing from the edge for this long abandons the answer,
   * whether it has ended or not.
   */
  endForgetMs: 30_000,
  /** How often both ends check their deadlines. */
  tickMs: 50,
} as const;

/** The type of {@link STREAM_LIMITS}, for tests with other values. */
export type StreamLimits = Readonly<Record<keyof typeof STREAM_LIMITS, number>>;

/**
 * Files, large requests, images and whole answers that a worker holds at a time, with
 * the copies that are made of them: default of `HELD_BYTES_MAX`. With what an idle
 * worker needs, and what V8 has not collected yet, less than 700 MiB. Beyond: another
 * worker is tried, then 503.
 */
export const HELD_BYTES_MAX = 400 * MIB;

/** Requests for images, speech and transcriptions. The bounds are OpenAI's. */
export const MEDIA_LIMITS = {
  /** The text to speak, unless its model has another bound; as OpenAI has it. */
  speechCharsMax: 4_096,
  speed: [0.25, 4],
  /** What to draw or film, unless its model has another bound. */
  promptCharsMax: 32_000,
  /** The largest of these two bounds that a model may have: a book. */
  textCharsMax: 1_000_000,
  /** The images of one request, unless its model has another bound. */
  imagesMax: 10,
  /** The largest such bound: more do not fit into an answer. */
  imagesOfModelMax: 100,
  /** Images to edit in one request. */
  editedImagesMax: 16,
  /** An image within JSON. */
  dataUrlCharsMax: 20 * MIB,
  /**
   * Pixels of an image to edit: a small file can decode to one that fills the memory of
   * a model server.
   */
  imagePixelsMax: 50_000_000,
  maskBytesMax: 4 * MIB,
  partialImagesMax: 3,
  /** The length of a recording or video. What a server states beyond is not charged. */
  secondsMax: 86_400,
  /** The text of a recording, with the times of its words. */
  transcriptBytesMax: 16 * MIB,
  /**
   * What a model server says of a video besides what clients rely on, as JSON, which is
   * kept with the job. Beyond: it is left out.
   */
  videoMoreCharsMax: 4_096,
  /**
   * The audio of one answer: the longest text, at a quarter of the speed, has 20
   * minutes, which are 230 MB in stereo at 48 kHz. Beyond: 502, or the answer is cut.
   */
  speechBytesMax: 256 * MIB,
  /**
   * One event with audio in base64, which a worker holds: minutes. Beyond: 502, or the
   * answer is cut.
   */
  speechEventCharsMax: 32 * MIB,
  /** The images of one answer in base64: ten at a large size. Beyond: 502. */
  imageAnswerBytesMax: 96 * MIB,
} as const;

/** Videos, which are jobs at a model server. */
export const VIDEO_LIMITS = {
  /** The file of a video. Beyond: the answer is cut. */
  fileBytesMax: 4 * 1024 * MIB,
  /** A download that is not read for this long is cut if others wait for its slot. */
  lateMs: 1_000,
  /** The image that a video starts with, unless its model has another bound. */
  referenceBytesMax: 20 * MIB,
  /** How long a model server may take to report the state of a job, or to delete it. */
  askMs: 15_000,
  /** A model server is asked about a job at most this often, whoever asks. */
  freshMs: 1_000,
  /** Jobs of an owner that an edge asks about at a time. Beyond: what was last seen. */
  askedMax: 32,
  /** How often edges check a job themselves, so that it ends even if no client asks. */
  sweepMs: 15_000,
  /** Jobs that an edge checks at a time. */
  sweptMax: 32,
  /** A job whose model server cannot be reached for this long fails. */
  engineLostMs: 600_000,
  /** A job that takes longer fails. */
  jobMs: 86_400_000,
  /** How long a job is kept if its model server does not say. */
  keptMs: 7 * 86_400_000,
  keptMsMax: 30 * 86_400_000,
  /** Videos on one page of a list, as OpenAI has it. */
  listMax: 100,
} as const;

/**
 * Files that clients upload. They pass through an edge in pieces, and are held by a
 * worker.
 */
export const UPLOAD_LIMITS = {
  /**
   * One request, unless its model has larger files. Beyond this and the next two: 413.
   */
  bytesMax: 64 * MIB,
  /** A recording, as OpenAI has it, unless its model has another bound. */
  audioBytesMax: 25 * MIB,
  /** An image to edit, as OpenAI has it, unless its model has another bound. */
  imageBytesMax: 50_000_000,
  /** The largest such bound: more does not arrive in time. */
  fileOfModelBytesMax: 128 * MIB,
  /** What a form has besides such a file. */
  besidesFileBytesMax: MIB,
  /** How long the whole upload may take: 64 MiB at 5 Mbit/s. */
  totalMs: 110_000,
  /**
   * A piece of 256 KiB that takes longer, 1 Mbit/s, is late: the upload gives its slot
   * at the worker to a request that waits for one. Beyond: 503 `overloaded`.
   */
  pieceMs: 2_000,
  filesMax: 17,
  fieldsMax: 64,
  /** A field: ten seconds of a speaker as a WAV file in base64. Beyond: 400. */
  fieldBytesMax: 3 * MIB,
  /** All fields of a form, which an edge holds: four such files. Beyond: 400. */
  fieldsBytesMax: 12 * MIB,
  partsMax: 100,
  /** Headers of one part. */
  headersMax: 16,
} as const;

/** Finding workers and detecting lost ones. */
export const DISPATCH_LIMITS = {
  workerBeatMs: 250,
  edgeBeatMs: 500,
  /** A worker without a beat for this long is probed. */
  workerProbeMs: 500,
  /** A worker without a beat for this long gets no new jobs. */
  workerSkipMs: 1_000,
  /** A worker without a beat for this long is lost, with its streams. */
  workerLostMs: 2_000,
  /**
   * A worker without a subscription on the bus for this long is lost. One that loses
   * its connection, or its NATS server, is back within some tens of milliseconds, and
   * within 200 if two dials fail (`retryMs` of the link).
   */
  workerMissingMs: 250,
  /** A worker cancels the jobs of an edge that is silent for this long. */
  edgeLostMs: 3_000,
  /** Requests survive a bus outage of this length. */
  busLostMs: 10_000,
  /** How long a worker may take to accept or reject a job. */
  acceptMs: 250,
  /** How long it starts jobs in one turn of the event loop; others are accepted only. */
  startsMs: 20,
  workersTriedMax: 3,
  /** How long a request waits for a slot, unless its model has another `queue`. */
  queueWaitMs: 2_000,
  /** How many wait for a model at an edge. */
  queueMax: 256,
  /** Offers of one request that may be lost or unanswered, including the first. */
  offersLostMax: 2,
} as const;

/** Request bodies on the bus. */
export const BUS_LIMITS = {
  /** A job up to this size is sent in one message; NATS' default limit is 1 MB. */
  jobBytesMax: 512 * KIB,
  /** A larger job is sent in pieces, of which `piecesInFlight` are unacknowledged. */
  pieceBytes: 256 * KIB,
  piecesInFlight: 4,
  /**
   * Frames to one edge that are sent in one message; one frame is at most a quarter of
   * it.
   */
  batchBytesMax: 256 * KIB,
} as const;

/** Log lines about refused requests of an edge, for each client and error code. */
export const REFUSAL_LOG = {
  /** Enough to see what the client asks for. Beyond: counted in `refusals`. */
  linesFirst: 3,
  /** How often the others are summed up. */
  sumMs: 60_000,
  /** Clients and codes at a time, 1 kB each. Beyond: summed up together, by code. */
  clientsMax: 1_000,
} as const;

/**
 * Requests that only count tokens, for each key at one edge. They cost nothing, and an
 * editor sends 50 at once when it starts.
 */
export const COUNT_LIMITS = {
  /** 600 a minute. Beyond: 429. */
  intervalMs: 100,
  burst: 200,
  /** At the same time, for each holds a slot of a worker. Beyond: 429. */
  runningMax: 64,
  /** Keys that are remembered; 100 bytes each. */
  keysMax: 10_000,
} as const;
