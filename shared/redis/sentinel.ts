/** Asks Redis Sentinel which server is the master now. */
import {
  connectInTime,
  makeClient,
  type RedisReply,
  type ServerAddress,
} from "./client.ts";

/** The sentinels that watch one master and its replicas. */
export interface SentinelGroup {
  /** How the sentinels call the master: `sentinel monitor <name> …`. */
  name: string;
  /** `host:port` of each. */
  servers: readonly string[];
  /** As whom to sign in at the sentinels, who have users of their own. */
  username?: string;
  password?: string;
}

/** What a look-up needs. */
export interface MasterQuery {
  group: SentinelGroup;
  /** Protocol, certificates and database; its host does not count. */
  address: ServerAddress;
  timeoutMs: number;
  leftovers: Set<Promise<void>>;
}

/**
 * Returns the address of the master. All sentinels are asked at once, and what more
 * than half of them say holds as soon as they do, so that one that is away costs no
 * time, and one that was cut off together with an old master is not followed. Where
 * no half agrees, what most of those say that answer in time. During a failover that
 * may still be the old one: the caller makes sure with {@link assertMaster}, and asks
 * again. Rejects when none of them knows.
 */
export async function findMaster(query: MasterQuery): Promise<ServerAddress> {
  const { name, servers } = query.group;
  try {
    const url = await agreed(servers.map((server) => askOne(server, query)));
    return { ...query.address, url };
  } catch (cause) {
    throw new Error(
      `Cannot find the master "${name}": no sentinel of ${servers.length} names it`,
      { cause },
    );
  }
}

/** What more than half say, at once; otherwise what most have said when all have ended. */
async function agreed(answers: readonly Promise<string>[]): Promise<string> {
  const needed = Math.floor(answers.length / 2) + 1;
  const votes = new Map<string, number>();
  const majority = Promise.withResolvers<string>();
  const counted = answers.map(async (answer) => {
    const url = await answer;
    const count = (votes.get(url) ?? 0) + 1;
    votes.set(url, count);
    if (count === needed) majority.resolve(url);
  });
  const all = Promise.allSettled(counted).then(() => {
    const [most] = [...votes].toSorted(([, a], [, b]) => b - a);
    return most === undefined ? Promise.any(answers) : most[0];
  });
  return await Promise.race([majority.promise, all]);
}

async function askOne(
  server: string,
  { group, address, timeoutMs, leftovers }: MasterQuery,
): Promise<string> {
  const { username: _user, password: _password, ...rest } = address;
  const client = makeClient(
    {
      ...rest,
      url: `${new URL(address.url).protocol}//${server}`,
      ...(group.username === undefined ? {} : { username: group.username }),
      ...(group.password === undefined ? {} : { password: group.password }),
    },
    timeoutMs,
    () => {}, // A lost connection fails the question that is on its way.
  );
  const reply = await connectInTime(client, {
    timeoutMs,
    leftovers,
    greet: (asked) =>
      asked.sendCommand<RedisReply>(
        ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", group.name],
      ),
  });
  client.destroy();
  return masterUrl(address.url, reply, server);
}

/** `["10.0.0.5", "6379"]`, or nil for a name that this sentinel does not watch. */
function masterUrl(url: string, reply: RedisReply, server: string): string {
  const [host, port] = Array.isArray(reply) ? reply : [];
  if (typeof host !== "string" || typeof port !== "string") {
    throw new Error(`The sentinel at ${server} does not know this master`);
  }
  const master = new URL(url);
  master.hostname = host.includes(":") ? `[${host}]` : host;
  master.port = port;
  return master.href;
}

/** Throws unless the answer to `ROLE` is a master's. */
export function assertMaster(role: RedisReply): void {
  const [word] = Array.isArray(role) ? role : [role];
  if (word !== "master") {
    throw new Error(`The server that was named as master says "${word}"`);
  }
}
