"""What a program with OpenAI's SDK for Python does, run by official_sdks.ts: it ends
with 0 if everything was as it should be."""
import json
import os

import openai

ADDRESS, KEY, WRONG_KEY, MODEL, EMBEDDING_MODEL = (
    os.environ[name]
    for name in ("ADDRESS", "KEY", "WRONG_KEY", "MODEL", "EMBEDDING_MODEL")
)
base_url = f"{ADDRESS}/v1"
client = openai.OpenAI(base_url=base_url, api_key=KEY, max_retries=0)
text = "Run `cat note.txt`"
tools = [
    {
        "type": "function",
        "name": "exec_command",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    }
]
ask = {"model": MODEL, "input": text}


def fails(expected, **change):
    try:
        client.responses.create(**{**ask, **change})
    except expected:
        return
    raise AssertionError(f"no {expected}")


whole = client.responses.create(**ask)
assert whole.output_text == "Hello there."
assert whole.usage.total_tokens == 15

with client.responses.stream(**ask, tools=tools) as stream:
    called = stream.get_final_response()
call = called.output[0]
assert json.loads(call.arguments) == {"cmd": "cat note.txt"}

history = [
    {"role": "user", "content": text},
    {
        "type": "function_call",
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
    },
    {"type": "function_call_output", "call_id": call.call_id, "output": "a mark"},
]
answered = client.responses.create(model=MODEL, input=history, tools=tools)
assert answered.output_text == "Result: a mark"

for more in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
    made = client.embeddings.create(
        model=EMBEDDING_MODEL, input=["a", "b"], **more
    )
    assert len(made.data) == 2
    first = made.data[0].embedding
    if more.get("encoding_format") == "base64":
        assert first == "AACAPwAAAEA="
    else:
        assert list(first) == [1.0, 2.0]

fails(openai.NotFoundError, model="none")
fails(openai.BadRequestError, previous_response_id="resp_1")
# With retries allowed, as they are by default.
client = openai.OpenAI(base_url=base_url, api_key=WRONG_KEY)
fails(openai.AuthenticationError)
