"""The requests of Open WebUI 0.6.36, with the libraries that it uses, run by
frameworks.ts: its list of models, a chat that it passes to the browser line by line,
vectors of documents, and a ranking by its external reranker. The program itself has
a hundred dependencies."""
import asyncio
import json
import os

import aiohttp
import requests

ADDRESS, KEY, MODEL, EMBEDDING_MODEL, RERANK_MODEL = (
    os.environ[name]
    for name in ("ADDRESS", "KEY", "MODEL", "EMBEDDING_MODEL", "RERANK_MODEL")
)
URL = f"{ADDRESS}/v1"
BEARER = {"Authorization": f"Bearer {KEY}"}
HEADERS = {"Content-Type": "application/json", **BEARER}


async def models():
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.get(f"{URL}/models", headers=BEARER) as response:
            return {model["id"] for model in (await response.json())["data"]}


async def chat(payload):
    texts, last = [], None
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.request(
            method="POST",
            url=f"{URL}/chat/completions",
            data=json.dumps(payload),
            headers=HEADERS,
        ) as response:
            assert "text/event-stream" in response.headers["Content-Type"]
            async for line in response.content:
                data = line.decode().strip().removeprefix("data:").strip()
                if not data or data == "[DONE]":
                    last = data or last
                    continue
                chunk = json.loads(data)
                assert "error" not in chunk, chunk
                for choice in chunk["choices"]:
                    texts.append(choice["delta"].get("content") or "")
                usage = chunk.get("usage")
    assert last == "[DONE]" and usage["completion_tokens"] > 0
    return "".join(texts)


def post(path, payload):
    response = requests.post(f"{URL}/{path}", headers=HEADERS, json=payload)
    response.raise_for_status()
    return response.json()


assert {MODEL, EMBEDDING_MODEL} <= asyncio.run(models())
asked = {
    "stream": True,
    "model": MODEL,
    "messages": [{"role": "user", "content": "Say hello."}],
    "stream_options": {"include_usage": True},
}
assert "simulator" in asyncio.run(chat(asked))
# Its title and tags: a whole answer.
title = post("chat/completions", {**asked, "stream": False, "stream_options": None})
assert title["choices"][0]["message"]["content"]
vectors = post("embeddings", {"input": ["a", "b"], "model": EMBEDDING_MODEL})
assert [len(each["embedding"]) for each in vectors["data"]] == [256, 256]
documents = ["sun", "rain"]
ranked = post(
    "rerank",
    {
        "model": RERANK_MODEL,
        "query": "rain",
        "documents": documents,
        "top_n": len(documents),
    },
)
by_index = sorted(ranked["results"], key=lambda result: result["index"])
assert all("relevance_score" in result for result in by_index)
assert [result["index"] for result in by_index] == [0, 1]
